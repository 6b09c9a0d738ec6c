"""The domain's types: experiments, trials, jobs, metrics, search spaces. Imports only the standard library."""
