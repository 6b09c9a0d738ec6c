"""Groups of commands. A failure prints one line on standard error and sets the exit code, without a traceback."""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from itertools import islice
from typing import Any, NoReturn

import click

from nni_manager.cli.output import echo
from nni_manager.domain.errors import ConfigInvalid, InvalidInput, NniManagerError

FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130

#: Options that choose the daemon; each takes a value.
_WHICH_DAEMON = ("--manager", "--data-dir", "--token-file")


class LateGroup(click.Group):
    """A group that imports its commands on use, because each command needs few of the modules.

    `late`: name → module below `nni_manager.cli`, a colon, and the command's name in the module.
    """

    def __init__(self, *args: Any, late: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._late = late

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self.commands, *self._late})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self._late and cmd_name not in self.commands:
            module, _, attribute = self._late[cmd_name].partition(":")
            self.add_command(getattr(import_module(f"{__package__}.{module}"), attribute), cmd_name)
        return super().get_command(ctx, cmd_name)


class CommandGroup(LateGroup):
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
    """The words of a command line, with leading options that choose the daemon moved to the end.

    ``nnictl --manager URL top`` means ``nnictl top --manager URL``.
    """
    early: list[str] = []
    while words and words[0].partition("=")[0] in _WHICH_DAEMON:
        count = 1 if "=" in words[0] else 2
        early, words = early + words[:count], words[count:]
    return [*words, *early]


def _prepare_stdout() -> None:
    """Make standard output accept any text.

    If it is closed, for example by ``>&-``, commands print nothing. Characters that cannot be encoded, for example in
    folder names that are not UTF-8, are printed as escapes.
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
        # file:line comes first, as in compilers' output, so that an editor can jump there
        _complain(*(str(problem) if problem.file else f"{program}: {problem}" for problem in error.problems))
        _complain(*(f"warning: {warning}" for warning in error.warnings))
        return BAD_INPUT
    _complain(f"{program}: {_sentence(error)}")
    return BAD_INPUT if isinstance(error, click.UsageError | InvalidInput) else FAILED


def _sentence(error: Exception) -> str:
    if isinstance(error, click.UsageError):
        hint = f"; see `{error.ctx.command_path} --help`" if error.ctx is not None else ""
        return f"{error.format_message().rstrip('.')}{hint}"
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, NniManagerError):
        return " ".join(str(error).splitlines())
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or _nowhere()}: {error.strerror}"
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{os.path.basename(frame.filename)}:{frame.lineno}"
    return f"{error!r} at {place}; this is a bug in nni_manager; please report it"


def _nowhere() -> str:
    """The probable object of an error without a file name."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return "the current folder, which was removed"
    return "the operating system"


def _complain(*lines: str) -> None:
    for line in lines:
        echo(line, err=True)


def written_out(words: list[str], command: click.Command, context: click.Context) -> list[str]:
    """A command line with abbreviated long options of `command` and its subcommands expanded.

    An ambiguous abbreviation raises UsageError with the candidates; an unknown one is left to click.
    """
    return list(_written_out(iter(words), command, context))


def _written_out(words: Iterator[str], command: click.Command, context: click.Context) -> Iterator[str]:
    for word in words:
        if word == "--" or command.ignore_unknown_options:
            yield word
            break
        if word.startswith("-"):
            name, equals, value = word.partition("=")
            option = _option(name, command, context)
            if option is not None and name not in _names(option):
                name = _begin(name, option)[0]
            yield f"{name}{equals}{value}"
            if option is not None and not equals:
                yield from islice(words, 0 if option.is_flag or option.count else option.nargs)
            continue
        yield word
        if isinstance(command, click.Group):
            command = command.get_command(context, word) or command
    yield from words


def _option(name: str, command: click.Command, context: click.Context) -> click.Option | None:
    """The option with this name, or the only one with a name that begins so. Raises UsageError."""
    options = [one for one in command.get_params(context) if isinstance(one, click.Option)]
    exact = [one for one in options if name in _names(one)]
    begun = [one for one in options if _begin(name, one)] if len(name) > 2 and name.startswith("--") else []
    if not exact and len(begun) > 1:
        candidates = ", ".join(_begin(name, one)[0] for one in begun)
        raise click.UsageError(f"{name} is ambiguous: {candidates}; write the option in full")
    return next(iter(exact or begun), None)


def _names(option: click.Option) -> list[str]:
    return [*option.opts, *option.secondary_opts]


def _begin(name: str, option: click.Option) -> list[str]:
    return [one for one in _names(option) if one.startswith(name)]
