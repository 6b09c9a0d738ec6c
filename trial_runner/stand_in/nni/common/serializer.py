"""`dump` and `load` where NNI has them."""

from nni.absent import refuse_missing
from nni.utils import dump, load

__getattr__ = refuse_missing(__name__)

__all__ = ["dump", "load"]
