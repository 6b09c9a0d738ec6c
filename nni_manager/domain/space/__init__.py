"""Search spaces and what is drawn from them."""
