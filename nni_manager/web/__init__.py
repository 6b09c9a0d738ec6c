"""HTML pages: rendered here, usable without JavaScript.

Pages read the `store`, ask `analysis` about trials, and their buttons call `scheduler.experiments.commands`.

No state is kept between requests, but the state that all readers share. `api` is not imported: charts and
links use its paths.
"""
