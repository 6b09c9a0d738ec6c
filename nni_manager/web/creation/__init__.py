"""A new experiment from the text of its file: pasted or uploaded, checked, started."""
