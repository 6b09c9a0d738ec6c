"""Code of jobs: received, unpacked and copied in the background."""
