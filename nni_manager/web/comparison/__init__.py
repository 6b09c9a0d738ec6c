"""The page that compares experiments."""
