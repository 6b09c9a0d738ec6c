"""The token in a file that ``--token-file`` names, or in the environment; tokens are no arguments, which everybody on
the machine can read."""

from __future__ import annotations

import os
from pathlib import Path

from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.token import parse_token

VARIABLE = "NNI_MANAGER_TOKEN"


def read_token(file: Path | None) -> str | None:
    """None: not given here. Raises InvalidInput; no text repeats what is in the file."""
    if file is None:
        return None
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InvalidInput(f"--token-file {file} cannot be read ({reason})") from None
    return _parsed(f"--token-file {file}", text)


def environment_token() -> str:
    """Empty: there is none. Raises InvalidInput."""
    text = os.environ.get(VARIABLE, "")
    return _parsed(VARIABLE, text) if text else ""


def _parsed(source: str, text: str) -> str:
    try:
        return parse_token(text)
    except ValueError as error:
        raise InvalidInput(f"{source}: {error}") from None
