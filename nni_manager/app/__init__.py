"""The composition root: builds everything, owns signals and sockets, and the order of start and shutdown.

`serve` runs the daemon, `build` makes what is behind its listeners. `app.listeners` serves `app.ports`: the service,
each experiment's endpoint (`app.endpoints`) and the trial listener (`app.trial_listener`). `app.nni_list` keeps NNI's
list of experiments current; `doctor` looks at all of it from outside.
"""
