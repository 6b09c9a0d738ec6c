"""Commands about the daemon itself."""
