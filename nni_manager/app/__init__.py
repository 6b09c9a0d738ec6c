"""The composition root: builds everything, owns signals and sockets, and the order of start and shutdown.

`serve` runs the daemon, `build` makes what is behind its doors. `app.doors` serves `app.ports`: the service, each
experiment's endpoint (`app.views`, `app.view_application`) and the trial listener (`app.trial_door`). `app.registry`
keeps NNI's list of experiments current; `doctor` looks at all of it from outside.
"""
