"""A text in YAML or JSON, read here or, where it is large, in a process of its own.

That process ends after some seconds whatever the YAML library does then. A thread could not be ended: it would outlive
the request that it reads for, and the end of the daemon.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

from nni_manager.config.reading import yaml_parser
from nni_manager.config.reading.document import Document, Node, Unreadable, patience
from nni_manager.config.reading.source import LARGE_CHARACTERS
from nni_manager.domain.errors import ConfigInvalid, Problem


def read(text: str, file: str) -> Document:
    """The document in a text that messages call `file`. Raises ConfigInvalid."""
    try:
        return parse(text)
    except Unreadable as error:
        raise ConfigInvalid([Problem(message=error.message, file=file, line=error.line)]) from None


def parse(text: str) -> Document:
    """The document in a text, which is one document of YAML or JSON. Raises Unreadable.

    A large one is read in a process of its own, which can be ended.
    """
    return yaml_parser.parse_here(text) if len(text) <= LARGE_CHARACTERS else _parse_apart(text)


#: Seconds that a text may take.
LIMIT_S = 10
_SCALAR, _LIST, _MAPPING = range(3)


def _parse_apart(text: str) -> Document:
    """As `yaml_parser.parse_here`. Raises Unreadable, also when the time limit is over."""
    waiting = patience.get()
    # -P: a folder that it happens to be started in has no modules for it
    command = [sys.executable, "-P", "-m", __name__, str(LIMIT_S)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        try:
            if waiting is not None:
                waiting.on_end(child.kill)
            answer, _ = child.communicate(text.encode("utf-8", "surrogatepass"))
        finally:
            child.kill()
    if child.returncode == 0:
        return _document(json.loads(answer))
    if waiting is not None:
        waiting.check(0)
    if child.returncode == -signal.SIGALRM:
        raise Unreadable(f"takes longer than {LIMIT_S} s to be read; make it smaller")
    raise Unreadable("cannot be read: the process that reads it has failed; make it smaller")


def main() -> None:
    """The process: a text on standard input, the document or what is wrong as JSON on standard output."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    signal.alarm(int(sys.argv[1]))
    try:
        document = yaml_parser.parse_here(sys.stdin.buffer.read().decode("utf-8", "surrogatepass"))
        answer: Any = {"root": _plain(document.root), "faults": document.faults}
    except Unreadable as error:
        answer = {"unreadable": [error.message, error.line]}
    sys.stdout.write(json.dumps(answer))


def _plain(node: Node) -> list[Any]:
    if isinstance(node.children, dict):
        return [node.line, _MAPPING, {key: _plain(child) for key, child in node.children.items()}]
    if isinstance(node.children, list):
        return [node.line, _LIST, [_plain(child) for child in node.children]]
    return [node.line, _SCALAR, node.value]


def _document(answer: dict[str, Any]) -> Document:
    if "unreadable" in answer:
        raise Unreadable(*answer["unreadable"])
    faults = [(tuple(path), line, message) for path, line, message in answer["faults"]]
    return Document(_node(answer["root"]), faults)


def _node(plain: list[Any]) -> Node:
    line, kind, content = plain
    if kind == _MAPPING:
        named = {key: _node(child) for key, child in content.items()}
        return Node(
            {key: child.value for key, child in named.items()}, line, named, yaml_parser.size_of(named.values())
        )
    if kind == _LIST:
        listed = [_node(child) for child in content]
        return Node([child.value for child in listed], line, listed, yaml_parser.size_of(listed))
    return Node(content, line)


if __name__ == "__main__":
    main()
