"""Runs pods: a node with processes of this machine as its containers."""
