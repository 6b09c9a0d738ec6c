"""Commands about trials and their logs."""
