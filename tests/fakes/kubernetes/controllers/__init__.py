"""The controllers of training jobs, and small controllers of every cluster."""
