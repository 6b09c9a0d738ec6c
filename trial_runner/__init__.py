"""Programs that run next to a trial: the keeper of a machine, the runner of a container, the stand-in for `nni`, and
the host of users' tuners.

Standard library only, Python 3.7 syntax, no imports from the manager: this package is copied to machines that have only
Python. The manager imports `protocol`, `wire` and the frame of a tuner's process from here.

Reading order of the runner: `__main__` and `runner.preparation`; then `runner.run` connects the parts, `command`
watches the command, and `delivery` posts the data of `results`, `output` and `posts`. `keeper` has its own reading
order, and starts `gpu_probe` to read GPUs.
"""
