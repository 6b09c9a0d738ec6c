"""The table of trials: its address, filter, rows, files, and what is done with ticked rows."""
