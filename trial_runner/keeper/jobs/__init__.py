"""Jobs of a keeper, from their start to what is kept of their end."""
