"""The terminal's width and colours, and a person's answer. Where output goes into a file or a pipe there are none."""

from __future__ import annotations

import os
import shutil
import sys

import click

#: The colour of a status; a status without one looks like other text.
_COLOURS = {
    "SUCCEEDED": "green",
    "DONE": "green",
    "RUNNING": "cyan",
    "FAILED": "red",
    "SYS_CANCELED": "red",
    "ERROR": "red",
    "ON HOLD": "red",
    "UNKNOWN": "yellow",
    "EARLY_STOPPED": "yellow",
    "STOPPING": "yellow",
}


def width() -> int | None:
    """The terminal's width in columns; None: there is no terminal, so nothing is cut, wrapped or left out."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def coloured_status(text: str) -> str:
    """A status in its colour. `text` may have blanks around it, and a sentence after its colon."""
    colour = _COLOURS.get(text.partition(":")[0].strip())
    return click.style(text, fg=colour) if colour and _has_colours() else text


def heading(text: str) -> str:
    return click.style(text, bold=True) if text and _has_colours() else text


def _has_colours() -> bool:
    """Whether output has colours; the variable NO_COLOR switches them off, whatever it says: no-color.org."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def confirmed(question: str) -> bool:
    """Whether the answer is yes; without a terminal or a line of input it is no."""
    try:
        return click.confirm(question)
    except click.Abort:
        click.echo()
        return False
