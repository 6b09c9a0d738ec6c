"""The REST API's typed client, and finding and starting the daemon."""
