"""Folders that the manager and jobs share: mounts, folders of jobs, and reading what a trial runner left there."""
