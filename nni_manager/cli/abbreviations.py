"""Long options cut short, as NNI's `nnictl` took them: ``--conf`` is ``--config`` where nothing else begins so."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import click


def written_out(words: list[str], command: click.Command, context: click.Context) -> list[str]:
    """A command line with every long option of `command` and of the commands below it written out.

    What begins like several options raises UsageError, which names them; what begins like none is left to click.
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
            name = name if option is None else _spelled(name, option)
            yield f"{name}{equals}{value}"
            if option is not None and not equals:
                yield from islice(words, _values(option))
            continue
        yield word
        if isinstance(command, click.Group):
            command = command.commands.get(word, command)
    yield from words


def _option(name: str, command: click.Command, context: click.Context) -> click.Option | None:
    """The option that is called so, or the only one that begins so. Raises UsageError."""
    options = [one for one in command.get_params(context) if isinstance(one, click.Option)]
    exact = [one for one in options if name in _names(one)]
    begun = [one for one in options if _begin(name, one)] if len(name) > 2 and name.startswith("--") else []
    if not exact and len(begun) > 1:
        candidates = ", ".join(_begin(name, one)[0] for one in begun)
        raise click.UsageError(f"{name} could be any of {candidates}; write out which")
    return next(iter(exact or begun), None)


def _names(option: click.Option) -> list[str]:
    return [*option.opts, *option.secondary_opts]


def _begin(name: str, option: click.Option) -> list[str]:
    return [one for one in _names(option) if one.startswith(name)]


def _spelled(name: str, option: click.Option) -> str:
    return name if name in _names(option) else _begin(name, option)[0]


def _values(option: click.Option) -> int:
    return 0 if option.is_flag or option.count else option.nargs
