"""HTML pages: rendered here, usable without JavaScript.

Imports: store (reads) and `scheduler.experiments.commands` (buttons).

Nothing is kept between two requests. `api` is a stranger: links and the stream of events lead to its paths, and no
code does.
"""
