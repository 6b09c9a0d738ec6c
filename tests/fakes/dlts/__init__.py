"""A DLWorkspace dashboard: its routes over HTTP, and jobs that really run.

There is no official schema of its bodies: six validators of the dashboard are one, where they are at hand; everything
else is a reading of its source, and of that of the service behind it.
"""
