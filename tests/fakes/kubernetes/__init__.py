"""A Kubernetes API server of our own, with controllers and pods whose commands really run: for tests."""
