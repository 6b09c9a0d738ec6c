"""Services that are asked over HTTP: accounts, pacing, lists that experiments share, and jobs led that way."""
