"""Requests that may pass: tokens, the login of the page, users of this machine."""
