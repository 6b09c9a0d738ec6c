"""NNI's REST API of one experiment, with the same paths and keys, for NNI's clients and page.

An application beside our API. The router has put the experiment's id into the scope. Imports what the rest of `api`
imports.
"""
