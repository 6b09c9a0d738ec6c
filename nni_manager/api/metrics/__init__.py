"""Metrics in Prometheus' format."""
