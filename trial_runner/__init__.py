"""Programs beside a trial: the keeper of a machine, the runner of a container, the stand-in for `nni`, and the host of
users' tuners.

Standard library only, Python 3.7 syntax, imports nothing of the manager: it is copied to machines that have Python and
nothing else. The manager in turn imports `protocol`, `wire` and the frame of a tuner's process from here.

Reading order of the runner: `__main__` and `runner.preparation`, then `runner.run` wires, `command` looks after the
command, `delivery` posts what `results`, `output` and `posts` have for it. `keeper` has an order of its own, and starts
`gpu_probe` to look at GPUs.
"""
