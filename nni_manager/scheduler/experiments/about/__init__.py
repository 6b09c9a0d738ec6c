"""What people note about experiments, and see of the training services that these share."""
