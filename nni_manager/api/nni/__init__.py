"""NNI's REST API of one experiment, to the key and without its dead ends: what NNI's clients and page speak.

An application of its own beside our API. Which experiment a request is about, whoever routed it has put into the scope.
Imports what the rest of `api` imports.
"""
