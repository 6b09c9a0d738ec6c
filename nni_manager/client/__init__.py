"""The REST API's typed client, and finding and starting the daemon. Imports: domain and the standard library."""
