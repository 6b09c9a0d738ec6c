"""The API server of a cluster: login, client, watches, names and kinds of objects."""
