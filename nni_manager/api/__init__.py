"""REST. Commands go to `scheduler.experiments.commands`, reads straight to the store. Imports: scheduler and below.

Read `application` first: it puts the routers together. `schemas` documents what goes over the wire; nothing below knows
those models. `guard` stands in front of everything that a TCP listener serves, pages included.
"""
