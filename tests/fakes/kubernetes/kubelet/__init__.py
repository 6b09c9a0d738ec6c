"""Runs pods: a node whose containers are local processes."""
