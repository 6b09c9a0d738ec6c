"""`OptimizeMode` where tuners import it."""

from nni.utils import OptimizeMode

__all__ = ["OptimizeMode"]
