"""The controllers of training jobs, and the smaller ones a cluster always has."""
