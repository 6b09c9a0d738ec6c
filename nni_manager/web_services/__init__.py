"""Services with an HTTP API: accounts, rate limits, lists that experiments share, and jobs."""
