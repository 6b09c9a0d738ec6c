"""Groups of commands whose failures are one sentence on standard error and an exit code; never a traceback."""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

import click

from nni_manager.cli.abbreviations import written_out
from nni_manager.domain.errors import ConfigInvalid, InvalidInput, NniManagerError

FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130

#: Options, each with a value, that say which daemon a command means.
_WHICH_DAEMON = ("--manager", "--data-dir", "--token-file")


class CommandGroup(click.Group):
    """A group of commands that ends with an exit code: 0 done, 1 failed, 2 usage or bad input, 130 interrupted."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.parent is None:
            args = written_out(_behind_command(args), self, ctx)
        return super().parse_args(ctx, args)

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        kwargs["standalone_mode"] = False
        _prepare_stdout()
        sys.exit(_run(lambda: super(CommandGroup, self).main(*args, **kwargs), self.name or ""))


def _behind_command(words: list[str]) -> list[str]:
    """The words of a command line, with options that say which daemon is meant moved from its start to its end.

    They may stand before the command too, as in ``nnictl --manager URL top``.
    """
    early: list[str] = []
    while words and words[0].partition("=")[0] in _WHICH_DAEMON:
        count = 1 if "=" in words[0] else 2
        early, words = early + words[:count], words[count:]
    return [*words, *early]


def _prepare_stdout() -> None:
    """Makes standard output take every answer.

    Where it is closed, as by ``>&-``, a command prints nothing. A character that it cannot spell, as in the name of a
    folder that is not UTF-8, becomes an escape, so that no answer is lost.
    """
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in ("strict", "surrogateescape"):
        sys.stdout.reconfigure(errors="backslashreplace")


def _run(command: Callable[[], object], program: str) -> int:
    try:
        code = command()
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return BAD_INPUT
    except click.Abort:
        return INTERRUPTED
    except Exception as error:
        return _report(error, program)
    return code if isinstance(code, int) else 0


def _report(error: Exception, program: str) -> int:
    if isinstance(error, ConfigInvalid):
        # a place comes first, as with compilers, so that an editor finds it
        _complain(*(str(problem) if problem.file else f"{program}: {problem}" for problem in error.problems))
        _complain(*(f"warning: {warning}" for warning in error.warnings))
        return BAD_INPUT
    _complain(f"{program}: {_sentence(error)}")
    return BAD_INPUT if isinstance(error, click.UsageError | InvalidInput) else FAILED


def _sentence(error: Exception) -> str:
    if isinstance(error, click.UsageError):
        return f"{error.format_message().rstrip('.')}{_help_hint(error.ctx)}"
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, NniManagerError):
        return " ".join(str(error).splitlines())
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return f"{error!r} {_origin(error)}; this is a fault of ours, please report it"


def _help_hint(context: click.Context | None) -> str:
    return f"; see `{context.command_path} --help`" if context is not None else ""


def _origin(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"at {os.path.basename(frame.filename)}:{frame.lineno}"


def _complain(*lines: str) -> None:
    for line in lines:
        click.echo(line, err=True)
