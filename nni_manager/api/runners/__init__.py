"""The application that trial runners post to."""
