"""One trial: page, drawer, log, files, and running it again; and failures by kind."""
