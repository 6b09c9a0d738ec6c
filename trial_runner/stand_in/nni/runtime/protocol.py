"""`send` and `CommandType` where advisors of NNI 2 import them."""

from __future__ import annotations

from nni.runtime.tuner_command_channel import CommandType

TYPE_CHECKING = False  # `typing` is slow to import and only checkers need it
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

__all__ = ["CommandType", "send"]

#: What takes the commands; the process that runs advisors sets it.
receiver: Optional[Callable[[CommandType, Any], None]] = None


def send(command: CommandType, data: Any) -> None:
    """Sends a command. Raises RuntimeError outside an experiment."""
    if receiver is None:
        raise RuntimeError("This advisor runs outside an experiment, so that nothing takes its commands.")
    receiver(command, data)
