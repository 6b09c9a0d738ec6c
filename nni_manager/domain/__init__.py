"""The words of the field: experiments, trials, jobs, metrics, search spaces. Imports the standard library only."""
