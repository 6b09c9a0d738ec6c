"""Parses YAML or JSON into a `Document`. Large texts are parsed in a separate process.

Values are those of JSON. `scalars.plain_value` reads scalars; keys are text; tags are refused. Depth, expanded size and
time are limited, so that no file can exhaust the daemon. The process can be killed at the time limit; a thread would
outlive its request and delay the end of the daemon.
"""

from __future__ import annotations

import pickle
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import yaml

from nni_manager.config.reading.document import MAX_DEPTH, MAX_VALUES, Document, Node, Path, Unreadable, patience
from nni_manager.config.reading.scalars import plain_value
from nni_manager.config.reading.source import LARGE_CHARACTERS
from nni_manager.domain.errors import ConfigInvalid
from trial_runner.wire.shortage import tried_again


def read(text: str, file: str) -> Document:
    """The document in a text; `file` names it in messages. Raises ConfigInvalid."""
    try:
        return parse(text)
    except Unreadable as error:
        raise ConfigInvalid.of(error.message, file=file, line=error.line) from None


def parse(text: str) -> Document:
    """The document in a text, which is one document of YAML or JSON. Raises Unreadable.

    A large text is parsed in a separate process, which can be killed.
    """
    return parse_here(text) if len(text) <= LARGE_CHARACTERS else _parse_apart(text)


#: Time limit for a text, in seconds.
LIMIT_S = 10


def _parse_apart(text: str) -> Document:
    """Like `parse_here`, in a separate process. Raises Unreadable, also at the time limit."""
    waiting = patience.get()
    # -P: do not import modules from the current folder
    command = [sys.executable, "-P", "-m", __name__, str(LIMIT_S)]
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    with tried_again(lambda: subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing)) as child:
        try:
            if waiting is not None:
                waiting.on_end(child.kill)
            answer, _ = child.communicate(text.encode("utf-8", "surrogatepass"))
        finally:
            child.kill()
    if child.returncode == 0:
        found = pickle.loads(answer)  # noqa: S301  `main` below has written it
        if isinstance(found, Document):
            return found
        raise found
    if waiting is not None:
        waiting.check(0)
    if child.returncode == -signal.SIGALRM:
        raise Unreadable(f"takes longer than {LIMIT_S} s to read; make it smaller")
    raise Unreadable("cannot be read: the process that parses it failed; make it smaller")


def main() -> None:
    """The process: a text on standard input, the pickled document, or Unreadable, on standard output."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    signal.alarm(int(sys.argv[1]))
    try:
        answer: Document | Unreadable = parse_here(sys.stdin.buffer.read().decode("utf-8", "surrogatepass"))
    except Unreadable as error:
        answer = error
    sys.stdout.buffer.write(pickle.dumps(answer))


_CORE = "tag:yaml.org,2002:"
_PLAIN_TAGS = {_CORE + name for name in ("int", "float", "bool", "null")}
_TAGS = _PLAIN_TAGS | {_CORE + name for name in ("str", "map", "seq")} | {None, "!"}
#: A line of three dots: omitted fields in a printed example; to YAML, the end of the document.
_ELLIPSIS = re.compile(r"^\.\.\.[ \t]*\r?$", re.MULTILINE)
_ELLIPSIS_FAULT = "'...' stands for omitted fields; replace it by the real fields"
#: How JSON escapes a character beyond U+FFFF, such as an emoji; a backslash before it makes plain text of it.
_PAIR = re.compile(r"(?<!\\)((?:\\\\)*)\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})", re.IGNORECASE)
_SECOND_DOCUMENT = "a line of '---' or '...' ends the config before this line; remove it"
_TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep"
_TOO_MANY = f"holds more than {MAX_VALUES} values, aliases expanded"
#: Values between two checks of the time limit.
_CHECKED_EVERY = 1000
#: Maximum number of lines that begin with %. Configs do not need them, and libyaml compares each with all before it.
_MOST_DIRECTIVES = 100
# libyaml, if PyYAML was built with it
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_here(text: str) -> Document:
    """The document in a text, which is one document of YAML or JSON. Raises Unreadable."""
    if text.lstrip().startswith(("{", "[")):
        text = text.replace("\t", " ")  # JSON allows tabs between tokens, YAML does not; neither allows them in strings
        text = _PAIR.sub(_joined, text)
    if text.count("\n%") > _MOST_DIRECTIVES:
        raise Unreadable(f"more than {_MOST_DIRECTIVES} lines begin with %; put text in quotes")
    try:
        text.encode()
        text, ellipsis = _without_ellipses(text)
        document = _Builder(yaml.parse(text, Loader=_LOADER)).document()
        document.faults += [(("...",), ellipsis, _ELLIPSIS_FAULT)] if ellipsis else []
        return document
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        last = len(text.splitlines()) or 1  # libyaml reports what is missing at the end in the line after the last
        raise Unreadable(_complaint(error), min(mark.line + 1, last) if mark else 0) from None
    except (yaml.YAMLError, UnicodeEncodeError):
        raise Unreadable("holds a character that is not allowed in text; save the file as plain UTF-8") from None


def _without_ellipses(text: str) -> tuple[str, int]:
    """The text without lines of three dots that are not at its end, and the line of the first; 0: none."""
    last = text.rfind("\n", 0, len(text.rstrip())) + 1
    before, rest = text[:last], text[last:]
    first = _ELLIPSIS.search(before)
    if first is None:
        return text, 0
    return _ELLIPSIS.sub("", before) + rest, text.count("\n", 0, first.start()) + 1


def _joined(pair: re.Match[str]) -> str:
    """The YAML escape of a character that JSON escapes as a surrogate pair, which YAML does not allow."""
    high, low = int(pair[2], 16), int(pair[3], 16)
    return rf"{pair[1]}\U{0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00):08x}"


def _complaint(error: yaml.MarkedYAMLError) -> str:
    if "document start" in (error.problem or ""):
        return _SECOND_DOCUMENT
    if "nesting depth" in (error.problem or ""):  # libyaml has its own limit, and may read ahead
        return _TOO_DEEP
    return f"not valid YAML: {error.problem or error.context}; check indentation, colons, quotes and brackets"


class _Builder:
    """Builds nodes from the YAML parser's events."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events
        self._anchors: dict[str, Node] = {}
        self._faults: list[tuple[Path, int, str]] = []
        self._patience = patience.get()
        #: Number of values examined.
        self._work = 0

    def document(self) -> Document:
        event = next(self._events)
        while isinstance(event, yaml.StreamStartEvent | yaml.DocumentStartEvent):
            event = next(self._events)
        if isinstance(event, yaml.StreamEndEvent):
            return Document(Node(None, 1))
        root = self._node(event, ())
        next(self._events)  # the end of the document
        if not isinstance(event := next(self._events), yaml.StreamEndEvent):
            raise Unreadable(_SECOND_DOCUMENT, _line(event))
        return Document(root, self._faults)

    def _node(self, event: Any, path: Path) -> Node:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if len(path) > MAX_DEPTH:
            raise Unreadable(_TOO_DEEP, _line(event))
        self._count(1, event)
        if event.tag not in _TAGS:
            self._fault(path, event, "'!' begins a YAML tag, and tags are not supported; put text in quotes")
        node = self._build(event, path)
        if node.size > MAX_VALUES:
            raise Unreadable(_TOO_MANY, _line(event))
        if event.anchor:
            self._anchors[event.anchor] = node
        return node

    def _count(self, values: int, event: Any) -> None:
        before, self._work = self._work, self._work + values
        if self._work > MAX_VALUES:
            raise Unreadable(_TOO_MANY, _line(event))
        if self._patience is not None and before // _CHECKED_EVERY != self._work // _CHECKED_EVERY:
            self._patience.check(_line(event))

    def _alias(self, event: Any) -> Node:
        if event.anchor not in self._anchors:  # the text may be a secret: do not repeat it
            raise Unreadable("'*' begins an alias, and its anchor is missing; put text in quotes", _line(event))
        original = self._anchors[event.anchor]
        return Node(original.value, _line(event), original.children, original.size)

    def _build(self, event: Any, path: Path) -> Node:
        if isinstance(event, yaml.ScalarEvent):
            plain = event.implicit[0] or event.tag in _PLAIN_TAGS
            return Node(plain_value(event.value) if plain else event.value, _line(event))
        if not isinstance(event, yaml.SequenceStartEvent):
            return self._mapping(event, path)
        children: list[Node] = []
        while not isinstance(item := next(self._events), yaml.SequenceEndEvent):
            children.append(self._node(item, (*path, len(children))))
        return Node([c.value for c in children], _line(event), children, _size_of(children))

    def _mapping(self, event: Any, path: Path) -> Node:
        children: dict[str, Node] = {}
        merged: list[Node] = []
        while not isinstance(key := next(self._events), yaml.MappingEndEvent):
            name = self._key(key)
            child = self._node(next(self._events), (*path, name))
            if name == "<<" and key.implicit[0]:
                merged.append(child)
            elif name in children:
                self._fault((*path, name), key, f"given twice, first in line {children[name].line}; keep one")
            else:
                child.line = _line(key)
                children[name] = child
        self._merge(children, merged, event)
        values = {key: child.value for key, child in children.items()}
        return Node(values, _line(event), children, _size_of(children.values()))

    def _merge(self, children: dict[str, Node], merged: list[Node], event: Any) -> None:
        """Add the values of ``<<: *other`` that the mapping itself does not set."""
        for node in merged:
            others = node.children if isinstance(node.children, list) else [node]
            for other in others:
                if not isinstance(other.children, dict):
                    raise Unreadable("'<<' takes an alias of a mapping, or a list of them", other.line)
                self._count(1 + len(other.children), event)
                for key, child in other.children.items():
                    children.setdefault(key, child)

    def _key(self, event: Any) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            raise Unreadable("a key must be text, not a list, a mapping or an alias", _line(event))
        return str(event.value)

    def _fault(self, path: Path, event: Any, message: str) -> None:
        self._faults.append((path, _line(event), message))


def _size_of(children: Iterable[Node]) -> int:
    return 1 + sum(child.size for child in children)


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


if __name__ == "__main__":
    main()
