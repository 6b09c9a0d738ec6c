"""The cause of a failure in what a command wrote to standard error.

The cause is the exception of the last traceback: warnings, logs and progress bars often follow it. Without a traceback
it is another line in which a program states why it ends, or else the last line that is not a warning, log or progress.

Tracebacks of several processes have prefixes, such as ``[rank0]: ``: the rank that failed first counts. Exceptions of
launchers (`ChildFailedError`), of threads and in destructors count only if no other one exists.
"""

import re
from typing import Iterator, List, NamedTuple, Optional, Set

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
#: A carriage return that belongs to the name of an interpreter, as in ``env: 'bash\r': No such file or directory``.
_IN_NAME = re.compile(r"\r(?=['’\"]?: )")
#: Maximum number of characters per line to check.
_LINE = 2000

_HEADER = re.compile(r"^(?P<prefix>.*?)(?:Exception Group )?Traceback \(most recent call last\):\s*$")
_FRAME = re.compile(r'^(?P<prefix>.*?)  File ".+", line \d+, in ')
_EXCEPTION = re.compile(r"^(?P<name>[^\W\d][\w.]*)(?:\([\w.]+\))?(?P<message>:(?:\s.*)?)?$")
_GROUP = re.compile(r"\(\d+ sub-exceptions?\)$")
_BARS = re.compile(r"^\s*(?:\| ?)+")
#: The line before a traceback that did not end the program.
_IGNORED = re.compile(r"Exception ignored (?:in|on)|Error in atexit|^--- Logging error ---")
_THREAD = re.compile(r"^Exception in (?:thread|callback) ")
#: Exceptions that only say that something else failed or was ended.
_WRAPPERS = ("ChildFailedError", "CalledProcessError", "KeyboardInterrupt", "SystemExit")

_TERMINATE = re.compile(r"terminate called after throwing an instance of '(?P<type>[^']+)'")
_WHAT = re.compile(r"^\s*what\(\):\s*(?P<message>\S.*)")
_FATAL = re.compile(r"^Fatal Python error: ")
_SYNTAX = re.compile(r"^(?:SyntaxError|IndentationError|TabError): ")
_FILE = re.compile(r'^\s+File ".+", line \d+$')
#: Messages of bash, env and busybox about a script whose interpreter does not exist.
_INTERPRETER = re.compile(
    r"bad interpreter: |cannot execute: required file not found|\\r['’\"]?: No such file or direc"
)

_LEVEL = re.compile(r"^.{0,60}?(?<![\w.])(?:WARNING|WARN|INFO|DEBUG|NOTICE)(?=[\]:|,\s-]|$)")
_SEVERE = re.compile(r"error|fatal|critical|fail", re.IGNORECASE)
_WARNING = re.compile(r"(?:^|[\s:(\[])\w*[Ww]arning\]?\s*:|^\s*warnings\.warn\(|^\[?[WI]\d{4}\b|^\[[WI]\d* ")
_NOISE = re.compile(
    r"resource_tracker|\d%\||\[\d+:\d+<|\b(?:it/s|s/it)\b|^\s+at |^wandb: (?!ERROR)|use -\[v\]S to pass options"
    r"|^[\W_]*$"
)


class Cause(NamedTuple):
    """The cause, and its lines: of a traceback from its header to the exception."""

    first: int
    last: int
    sentence: str


class _Traceback(NamedTuple):
    cause: Cause
    #: The prefix of each of its lines.
    prefix: str
    #: Of those with the greatest weight one is the cause; 0: it did not end the program.
    weight: int


def cause_of(text: str) -> str:
    """The cause in one line; empty: nothing was written."""
    lines = cleaned(text)
    found = _find(lines)
    return found.sentence if found is not None else _last_line(lines)


def excerpt(text: str, limit: int) -> str:
    """The end of the text in at most `limit` bytes, with its cause. Lines between a distant traceback and the end are
    omitted."""
    lines = cleaned(text)
    found = _find(lines)
    end = _last_bytes("\n".join(lines), limit)
    if found is None or len("\n".join(lines[found.first :]).encode("utf-8", "replace")) <= limit:
        return end
    body = lines[found.first + 1 : found.last]
    kept = [lines[found.first], *(["  […]"] if len(body) > 4 else []), *body[-4:], lines[found.last]]
    head = "\n".join(line[:240] for line in kept) + "\n[…]\n"
    return head + _last_bytes(end, max(0, limit - len(head.encode("utf-8", "replace"))))


def cleaned(text: str) -> List[str]:
    """Its lines without colors and control characters; redrawn lines in their last state."""
    plain = _IN_NAME.sub(r"\\r", _ESCAPES.sub("", text))
    return [_drawn(line) for line in plain.split("\n")]


def _drawn(line: str) -> str:
    if "\r" in line:
        line = next((part for part in reversed(line.split("\r")) if part.strip()), "")
    if line.isprintable():
        return line
    return "".join(character for character in line if character.isprintable() or character == "\t")


def _last_bytes(text: str, limit: int) -> str:
    return text.encode("utf-8", "replace")[-limit:].decode("utf-8", "ignore") if limit > 0 else ""


def _find(lines: List[str]) -> Optional[Cause]:
    """The cause, if a traceback or the like shows it; None: no line stands out."""
    short = [line[:_LINE] for line in lines]
    tracebacks = [found for found in _tracebacks(short) if found.weight]
    if not tracebacks:
        return next(_other_causes(short), None)
    most = max(found.weight for found in tracebacks)
    heaviest = [found for found in tracebacks if found.weight == most]
    first = heaviest[0].prefix
    return [found for found in heaviest if not first.strip() or found.prefix == first][-1].cause


def _tracebacks(lines: List[str]) -> Iterator[_Traceback]:
    has_header = False
    for number, line in enumerate(lines):
        header = _HEADER.match(line)
        frame = None if has_header else _FRAME.match(line)  # its header was truncated
        if header is None and frame is None:
            continue
        has_header = True
        found = _followed(lines, number, (header or frame).group("prefix"))  # type: ignore[union-attr]  # one is there
        if found is not None:
            yield found


def _followed(lines: List[str], first: int, prefix: str) -> Optional[_Traceback]:
    """The traceback whose header is line `first`; None: its exception is missing."""
    is_group = prefix.endswith("+ ")
    prefix = prefix[:-2] + "| " if is_group else prefix
    after = lines[first + 1] if first + 1 < len(lines) else ""
    if after[:1].isspace() and not after.startswith(prefix):
        prefix = ""  # only the header's line has it
    was_indented = True
    for number in range(first + 1, len(lines)):
        if not lines[number].startswith(prefix):
            continue
        line = lines[number][len(prefix) :]
        if _HEADER.match(line):
            return None
        exception = _EXCEPTION.match(line)
        if exception and (was_indented or exception.group("message")) and not _is_noise(line):
            sentence = line.rstrip() + (_first_of_group(lines, number) if _GROUP.search(line) else "")
            weight = _weight(exception.group("name"), lines[first - 1] if first else "", prefix, is_group)
            return _Traceback(Cause(first, number, sentence), prefix, weight)
        was_indented = line[:1].isspace()
    return None


def _weight(name: str, before: str, prefix: str, is_group: bool) -> int:
    if _IGNORED.search(before):
        return 0
    if "|" in prefix and not is_group:
        return 1  # part of an exception group, whose beginning may be truncated
    if name.endswith(_WRAPPERS):
        return 2
    return 3 if _THREAD.match(before) else 4


def _first_of_group(lines: List[str], group: int) -> str:
    """The first exception in a group, after a colon; empty: none is there."""
    for line in lines[group + 1 :]:
        bars = _BARS.match(line)
        inner = line[bars.end() :] if bars else ""
        if inner and _EXCEPTION.match(inner) and not _HEADER.match(inner):
            return ": " + inner.strip()
    return ""


def _other_causes(lines: List[str]) -> Iterator[Cause]:
    """Candidates without a traceback, the last one first."""
    for number in reversed(range(len(lines))):
        line = lines[number]
        what, thrown = _WHAT.match(line), _TERMINATE.search(lines[number - 1]) if number else None
        if what and thrown:
            yield Cause(number - 1, number, "{}: {}".format(thrown.group("type"), what.group("message").rstrip()))
        elif _FATAL.match(line) or (_SYNTAX.match(line) and any(map(_FILE.match, lines[max(0, number - 4) : number]))):
            yield Cause(number, number, line.strip())
        elif _INTERPRETER.search(line):
            yield Cause(number, number, line.strip() + _why_no_interpreter(line))


def _why_no_interpreter(line: str) -> str:
    if "^M" in line or "\\r" in line:
        return " (the script's first line ends with CRLF, as Windows writes it; convert the script: dos2unix)"
    return (
        " (the interpreter in the script's first line does not exist; if that line ends with CRLF, convert the script:"
        " dos2unix)"
    )


def _last_line(lines: List[str]) -> str:
    """The last line that is not a warning, log or progress; if all are, the last one."""
    ignored = _ignored(lines)
    last, noisy = "", True
    for number in reversed(range(len(lines))):
        line = lines[number][:_LINE]
        if not line.strip():
            continue
        is_context = line[:1].isspace() and number and _WARNING.search(lines[number - 1][:_LINE])
        if number not in ignored and not is_context and not _is_noise(line):
            return line.strip()
        last, noisy = (line.strip(), False) if noisy else (last, noisy)
    return last


def _ignored(lines: List[str]) -> Set[int]:
    """The lines of tracebacks that did not end the program, with their announcements."""
    found = [one.cause for one in _tracebacks([line[:_LINE] for line in lines]) if not one.weight]
    announced = {number for number, line in enumerate(lines) if _IGNORED.search(line[:_LINE])}
    return announced.union(*(range(cause.first, cause.last + 1) for cause in found))


def _is_noise(line: str) -> bool:
    level = _LEVEL.match(line)
    return bool((level and not _SEVERE.search(level.group())) or _WARNING.search(line) or _NOISE.search(line))
