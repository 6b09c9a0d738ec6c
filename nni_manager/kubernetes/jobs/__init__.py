"""The objects of a job and of its experiment: creation, memory, removal."""
