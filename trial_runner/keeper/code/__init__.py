"""Code of jobs: received, unpacked and copied beside the keeper's other work."""
