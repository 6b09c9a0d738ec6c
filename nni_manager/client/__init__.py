"""The REST API's typed client, for the command line. Imports: domain and the standard library."""
