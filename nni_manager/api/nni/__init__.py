"""NNI's REST API of an experiment, with the same paths and keys, for NNI's clients and page.

It is an application next to our API. The router puts the experiment's id into the scope. Its import rules are those of
the rest of `api`.
"""
