"""The formats of a config: NNI's second, extended by fields of nni_manager, and NNI's first.

To add a format, add a module ``dialect_*.py`` with `is_mine` and `read` (see `dialect_v1`), and a table next to the
model of each platform that the format supports (`PlatformDescription.formats`).
"""
