"""The objects of a job and of its experiment: made, remembered, removed."""
