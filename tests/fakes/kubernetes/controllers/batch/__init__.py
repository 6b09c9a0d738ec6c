"""The controllers of `batch/v1` Jobs: pods, counts, conditions and time to live, as in Kubernetes 1.32."""
