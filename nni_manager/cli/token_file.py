"""The token in a file that ``--token-file`` names; tokens are no arguments, which everybody on the machine can read."""

from __future__ import annotations

from pathlib import Path

from nni_manager.domain.errors import InvalidInput


def read_token(file: Path | None) -> str | None:
    """None: not given here. Raises InvalidInput; no text repeats what is in the file."""
    if file is None:
        return None
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InvalidInput(f"--token-file {file} cannot be read ({reason})") from None
    if not token or not token.isprintable():
        raise InvalidInput(f"--token-file {file} must hold one line with the token")
    return token
