"""HTML pages: rendered here, usable without JavaScript.

Imports: store (reads), `analysis` (questions about trials) and `scheduler.experiments.commands` (buttons).

No state is kept between requests, but the state that all readers share. `api` is not imported: charts and
links use its paths.
"""
