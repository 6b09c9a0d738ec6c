"""`nni-manager serve`: the daemon in the foreground."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from nni_manager.cli.data_directory import data_directory_option
from nni_manager.domain.errors import InvalidInput, NniManagerError

LOG_LEVELS = ("fatal", "error", "warning", "info", "debug", "trace")


@click.command()
@data_directory_option
@click.option("--host", metavar="ADDRESS", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="TCP port; 0: any free one.  [default: 8080]")
@click.option("--no-listen", is_flag=True, help="No TCP port: nnictl on this machine only.")
@click.option(
    "--token-file", type=click.Path(path_type=Path),
    help="File that holds the token clients must show; or set NNI_MANAGER_TOKEN.",
)  # fmt: skip
@click.option("--insecure", is_flag=True, help="Listen on other addresses than this machine's without a token.")
@click.option("--auto", is_flag=True, help="End once no experiment is open.")
@click.option("--ready-fd", type=click.IntRange(3), metavar="N", help="Say `ready` or `error: …` on descriptor N.")
@click.option("--log-level", type=click.Choice(LOG_LEVELS), help="How much is told on standard error.")
def serve(
    *, no_listen: bool, token_file: Path | None, insecure: bool, auto: bool, ready_fd: int | None, **settings: object
) -> None:
    """Run the daemon until it is told to end. Trials go on without it and are found again by the next one."""
    try:
        settings["token"] = _token(token_file)
        code = _serve(settings, listen=not no_listen, auto=auto, ready_fd=ready_fd, insecure=insecure)
    except NniManagerError as error:
        _tell(ready_fd, error)
        raise
    sys.exit(code)


def _serve(settings: dict[str, object], **doors: Any) -> int:
    from nni_manager.app import serve as app
    from nni_manager.config import settings as configured

    code: int = app.serve(configured.load(settings, os.environ), **doors)
    return code


def _token(file: Path | None) -> str | None:
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


def _tell(ready_fd: int | None, error: NniManagerError) -> None:
    if ready_fd is not None:
        with suppress(OSError):  # whoever waited has gone
            os.write(ready_fd, f"error: {' '.join(str(error).splitlines())}\n".encode())
