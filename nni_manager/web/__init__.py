"""HTML pages: rendered here, usable without JavaScript.

Imports: store (reads) and `scheduler.experiments.commands` (buttons).

No state is kept between requests. `api` is not imported: links and the stream of events use its paths.
"""
