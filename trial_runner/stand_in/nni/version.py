"""The version under NNI's name for its module."""

from nni import __version__

__all__ = ["__version__"]
