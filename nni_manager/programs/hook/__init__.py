"""NNI's own launchers on our daemon: NNI finds the package `nni_node` in `path`, first on PYTHONPATH.

NNI starts its program `node` instead of its own manager. `node` is that process, `arguments` parses its arguments, and
`front` answers until the experiment has an endpoint.
"""
