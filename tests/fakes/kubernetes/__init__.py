"""A Kubernetes API server for tests, with controllers, and pods that run their commands."""
