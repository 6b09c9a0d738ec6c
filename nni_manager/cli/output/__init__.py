"""Values, tables and what a terminal can show."""
