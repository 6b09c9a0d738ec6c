"""NNI's own launchers on our daemon: `path` goes first on PYTHONPATH, and NNI finds a package `nni_node` there.

Its program `node` is what NNI starts in place of its own manager: `node` is that process, `arguments` what it is told,
`front` how it answers until the experiment has an endpoint.
"""
