"""What is wrong with an experiment file, and what to know of it, beside its lines: the sentences of `config check`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nni_manager.config import admission
from nni_manager.config.daemon_settings.settings import own_environment
from nni_manager.domain.errors import ConfigInvalid, InvalidInput, NniManagerError, Problem
from nni_manager.scheduler.experiments.submission import Submission

if TYPE_CHECKING:
    from nni_manager.web.rendering import PagesContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of the file with what is said of it."""

    text: str
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    text: str
    problems: Sequence[Problem] = ()
    warnings: Sequence[Problem] = ()
    #: None: it has problems.
    submission: Submission | None = None

    @property
    def lines(self) -> Iterator[Line]:
        """The file's lines; a blank one at its end is left out."""
        for number, text in enumerate(self.text.rstrip("\n").split("\n"), start=1):
            yield Line(text=text, problems=_of(self.problems, number), warnings=_of(self.warnings, number))

    @property
    def elsewhere(self) -> list[Problem]:
        """What belongs to no line of the file: to all of it, or to another file that it names."""
        return [one for one in (*self.problems, *self.warnings) if not one.line or one.file]


def _of(problems: Sequence[Problem], number: int) -> tuple[Problem, ...]:
    return tuple(one for one in problems if one.line == number and not one.file)


async def judge(context: PagesContext, text: str) -> Verdict:
    """Reads the file and checks all that `create` refuses without asking a platform."""
    assert context.read_experiment is not None, "the page is offered only then"
    try:
        submission = await context.read_experiment(text)
        spec = submission.spec
        if context.data_directory is not None:
            await asyncio.to_thread(
                admission.check_here, spec, context.data_directory, own_environment(), file="", python=""
            )
    except ConfigInvalid as error:
        return Verdict(text=text, problems=error.problems, warnings=error.warnings)
    except InvalidInput as error:
        return Verdict(text=text, problems=[Problem(message=str(error))])
    warnings = (*spec.warnings, *admission.without_direction(spec, ""))
    return Verdict(text=text, warnings=warnings, submission=submission)


def refused(verdict: Verdict, error: NniManagerError) -> Verdict:
    """The verdict on a file that was right, and whose experiment could not be made."""
    return Verdict(text=verdict.text, problems=[Problem(message=str(error))], warnings=verdict.warnings)
