"""JSON of parameters and results, and `hpo_utils` for tuners."""

from nni.utils import dump, load

__all__ = ["dump", "load"]
