"""The composition root: builds everything, owns signals and sockets, and the order of start and shutdown.

`serve` runs the daemon, `build` makes what is behind its doors. `doors` serves `ports`: the service, each experiment's
view (`views`, `view_application`) and the trial listener (`trial_door`). `registry` keeps NNI's list of experiments
current; `doctor` looks at all of it from outside.
"""
