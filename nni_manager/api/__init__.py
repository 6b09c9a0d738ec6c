"""The REST API. Commands go to `scheduler.experiments.commands`, reads directly to the store.

Read `application` first: it combines the routers. `schemas` documents the bodies; lower packages do not use those
models. `access.guard` checks every request of a TCP listener, pages included.
"""
