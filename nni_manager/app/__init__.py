"""The composition root: builds everything, owns signals and sockets, orders start and shutdown.

`serve` runs the daemon; `build` creates the parts behind its listeners. `listening.listeners` serves `listening.ports`:
the service, each experiment's endpoint (`listening.endpoints`) and the trial listener (`listening.trial_listener`).
`nni_list` keeps NNI's list of experiments current; `doctor` checks the installation from outside.
"""
