"""Access control: tokens, the page's login, users of this machine."""
