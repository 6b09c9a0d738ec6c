"""The table of trials: address, filter, rows, downloads, and actions on ticked rows."""
