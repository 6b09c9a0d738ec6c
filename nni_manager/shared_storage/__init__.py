"""Folders that the manager and jobs share: mounts, folders of jobs, and reading a trial runner's files there."""
