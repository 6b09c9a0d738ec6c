"""`nni-manager serve` (the daemon), and commands for other programs.

`runner` writes the program that runs trials in containers of a cluster, `stand-in-path` prints the folder of the
substitute for NNI's SDK, `nni-hook` the shell code that lets NNI's launchers start experiments on this daemon.
"""

from __future__ import annotations

import gc
import logging
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from nni_manager.cli.output import echo
from nni_manager.cli.session import data_directory_option
from nni_manager.client.caller import read_token
from nni_manager.domain.errors import InvalidInput, NniManagerError
from nni_manager.programs import hook


@click.command("nni-hook")
def nni_hook() -> None:
    """Print shell code that makes NNI's programs use this daemon.

    These are its nnictl and Python programs. In a shell of the environment that has NNI, run:
    eval "$(nni-manager nni-hook)"
    """
    folder = Path(hook.__file__).parent / "path"
    node = folder / "nni_node" / "node"
    if not os.access(node, os.X_OK):
        raise NniManagerError(f"{node} is not executable; run `chmod +x` on it, or reinstall nni-manager")
    echo(f'export PYTHONPATH={shlex.quote(str(folder))}"${{PYTHONPATH:+:$PYTHONPATH}}"')
    echo(f"export NNI_NODE_PYTHON={shlex.quote(sys.executable)}")


@click.group()
def runner() -> None:
    """Build the program that runs trials in a cluster's containers."""


@runner.command()
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("runner.pyz"),
    show_default=True,
    help="File to write.",
)
def build(output: Path) -> None:
    """Write the trial runner as one file. It needs only Python 3.7 or newer."""
    from nni_manager.platform_kit.payload import runner_archive

    data = runner_archive()
    try:
        output.write_bytes(data)
        output.chmod(0o755)
    except OSError as error:
        raise InvalidInput(f"--output {output} cannot be written ({error.strerror}); choose another file") from None
    echo(f"{output}: {len(data)} bytes")


@click.command("stand-in-path")
def stand_in_path() -> None:
    """Print the folder of the substitute for NNI's SDK. With it on PYTHONPATH, trial code also runs outside a trial."""
    from nni_manager.platform_kit.payload import STAND_IN

    echo(STAND_IN)


log = logging.getLogger(__name__)

# as in config.scalars, which costs time to import
LOG_LEVELS = ("fatal", "error", "warning", "info", "debug", "trace")


@click.command()
@data_directory_option
@click.option("--host", metavar="ADDRESS", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="TCP port; 0: any free one.  [default: 8080]")
@click.option(
    "--trial-host", metavar="ADDRESS", help="Address to which trials on other machines report.  [default: all]"
)
@click.option(
    "--trial-port", type=click.IntRange(0, 65535), help="TCP port for these reports; 0: --port + 1.  [default: 0]"
)
@click.option(
    "--no-listen",
    is_flag=True,
    help="Open no TCP port, neither for clients nor for trials on other machines.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help="File with the token that clients must send; or set NNI_MANAGER_TOKEN.",
)
@click.option(
    "--read-token-file",
    type=click.Path(path_type=Path),
    help="File with a token for clients that may only read; or set NNI_MANAGER_READ_TOKEN.",
)
@click.option(
    "--allow-local-users",
    metavar="NAMES",
    help="Other users of this machine admitted while no token is set: comma-separated names, or `true`.",
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Listen on other addresses than 127.0.0.1 without a token, or with a weak one.",
)
@click.option("--auto", is_flag=True, help="End when no experiment is open; open no port for the page.")
@click.option("--ready-fd", type=click.IntRange(3), metavar="N", help="Write `ready` or `error: …` to descriptor N.")
@click.option("--log-level", type=click.Choice(LOG_LEVELS), help="Log level on standard error.")
def serve(
    *,
    no_listen: bool,
    token_file: Path | None,
    read_token_file: Path | None,
    insecure: bool,
    auto: bool,
    ready_fd: int | None,
    **settings: object,
) -> None:
    """Run the daemon until it is stopped. Trials keep running without it, and the next daemon continues them."""
    from nni_manager.app.listening import reserves

    reserves.fill_standard_streams()
    with _waiting(ready_fd) as tell:
        try:
            settings["token"] = read_token(token_file)
            settings["read_token"] = read_token(read_token_file, "--read-token-file")
            code = _serve(
                settings,
                listen=not (no_listen or auto),
                trials=not no_listen,
                auto=auto,
                ready_fd=ready_fd,
                insecure=insecure,
            )
        except NniManagerError as error:
            tell(str(error))
            raise
        except Exception:
            log.exception("the daemon ended because of a bug", extra={"action": "fault"})
            raise
    sys.exit(code)


def _serve(settings: dict[str, object], **listeners: Any) -> int:
    gc.disable()  # until all is built: garbage collection during the imports takes a sixth of the start time
    from nni_manager.app import serve as app
    from nni_manager.config import settings as configured

    settings["allow_local_users"] = _allowed(settings["allow_local_users"])
    return int(app.serve(configured.load(settings, os.environ), **listeners))


def _allowed(text: object) -> object:
    """The value of ``--allow-local-users``. Raises InvalidInput."""
    from nni_manager.config.reading.scalars import local_users, plain_value

    try:
        return local_users(plain_value(text)) if isinstance(text, str) else None
    except ValueError as error:
        raise InvalidInput(f"--allow-local-users {error}") from None


@contextmanager
def _waiting(ready_fd: int | None) -> Iterator[Callable[[str], None]]:
    """A function that writes an error message to `ready_fd`, but not after the daemon is ready."""
    if ready_fd is None:
        yield lambda sentence: None
        return
    # a duplicate: the daemon closes `ready_fd`, and another file may then get its number
    own = _duplicate(ready_fd)
    try:
        yield lambda sentence: _tell(own, sentence)
    finally:
        os.close(own)


def _duplicate(descriptor: int) -> int:
    try:
        return os.dup(descriptor)
    except OSError:
        raise InvalidInput(f"--ready-fd {descriptor}: this descriptor is not open; remove the option") from None


def _tell(descriptor: int, sentence: str) -> None:
    with suppress(OSError):  # the reader has gone, or the descriptor is closed
        os.write(descriptor, f"error: {' '.join(sentence.splitlines())}\n".encode())
