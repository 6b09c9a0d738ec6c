"""HTML pages: rendered here, usable without JavaScript.

Pages read the `store` and ask `analysis` about trials. Their buttons call `scheduler.experiments.commands`.

The only state kept between requests is what all readers share. `api` is not imported: charts and links use
its paths.
"""
