"""The checks of `nni-manager doctor`: one module for each kind of thing that may be wrong. Nothing is left behind: no
process, no file, no folder.
"""
