"""Search spaces and samples from them."""
