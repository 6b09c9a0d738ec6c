"""What `nni-manager doctor` looks at: one module for each kind of thing that may be wrong. Nothing is left behind: no
process, no file, no folder.
"""
