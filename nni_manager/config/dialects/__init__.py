"""The formats that a config may have: NNI's second, which is ours with fields of our own, and NNI's first.

A further one is a module ``dialect_*.py`` with `is_mine` and `read` (see `dialect_v1`), and a table beside the model of
each platform that it has (`PlatformDescription.formats`). There is no list to edit.
"""
