"""A Kubernetes API server for tests, with controllers, and pods that really run their commands."""
