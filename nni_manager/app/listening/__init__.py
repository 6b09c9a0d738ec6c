"""Sockets: ports and their listeners, the connections of each, endpoints of experiments, TLS of trials."""
