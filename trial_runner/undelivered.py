"""What the manager will not get of an attempt, in sentences: said at once, and part of the runner's last word."""

from typing import Callable, List

from trial_runner import protocol

_MAX_CHARACTERS = 300


class Undelivered:
    """The first few sentences are kept, the others counted. Any thread may add one."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._sentences: List[str] = []
        self._more = 0

    def add(self, sentence: str) -> None:
        """What was said already is not said again."""
        sentence = sentence[:_MAX_CHARACTERS]
        if sentence in self._sentences:
            return
        if len(self._sentences) == protocol.MAX_SENTENCES - 1:
            self._more += 1
            return
        self._sentences.append(sentence)
        self._say(sentence)

    def sentences(self) -> List[str]:
        return [*self._sentences, "and {} more of the kind".format(self._more)] if self._more else self._sentences[:]
