"""The states, logs and results of jobs, as a cluster shows them."""
