"""Names of fields in a program's spelling, for messages about an experiment file from its fields."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nni_manager.domain.errors import ConfigInvalid, InvalidInput, Problem

if TYPE_CHECKING:
    from nni_manager.config.reading.document import Document

#: Fields whose keys are the user's own, as Python and as experiment files spell them.
OWN_KEYS = frozenset({"searchSpace", "classArgs", "objectives", "constraints", "environment", "env", "labels"})
_STEPS = re.compile(r"[^.\[\]]+|\[\d+\]")
#: A field at the beginning of a sentence.
_FIELD = re.compile(r"(\w[\w.\[\]]*):? ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """The spelling of a program's fields."""

    #: The file's name of a field, or the path of one → the program's.
    names: Mapping[str, str]
    #: Those at the top, by the file's name.
    given: frozenset[str] = frozenset()

    below: Document | None = None
    file: str = ""

    def respelled(self, field: str) -> str:
        """The path of a field in the program's spelling."""
        found, is_own = self.names.get(field, ""), False
        if found:
            return found
        for step in _STEPS.findall(field):
            name = step if is_own else self.names.get(step, step)
            found += name if not found or name.startswith("[") else f".{name}"
            is_own = is_own or step in OWN_KEYS
        return found

    def sentence(self, text: str) -> str:
        """The message in the program's spelling, if it begins with a field."""
        written = text.removeprefix(f"{self.file or 'config'}:1: ")  # this text is not from the program
        found = _FIELD.match(written)
        if found is None:
            return text
        if written == text:
            return self.respelled(found[1]) + text[found.end(1) :]
        return str(self._problem(Problem(message=written[found.end() :], field=found[1], file=self.file)))

    def refusal(self, error: InvalidInput) -> InvalidInput:
        """The error in the program's spelling, without line numbers of generated text."""
        if isinstance(error, ConfigInvalid):
            return ConfigInvalid(*([self._problem(one) for one in found] for found in (error.problems, error.warnings)))
        return InvalidInput(self.sentence(str(error))) if type(error) is InvalidInput else error

    def _problem(self, problem: Problem) -> Problem:
        if problem.file != self.file:  # of a search space, which the program did not change
            return replace(problem, field=self.respelled(problem.field))
        steps = _STEPS.findall(problem.field)
        if self.below is None or not steps or steps[0] in self.given:
            return replace(problem, field=self.respelled(problem.field), file="", line=0)
        path = tuple(int(step[1:-1]) if step.startswith("[") else step for step in steps)
        from nni_manager.config.reading.source import spell

        spelled, line = self.below.locate(path)
        return replace(problem, field=spell(spelled), line=line)
