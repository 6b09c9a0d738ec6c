"""The channel exec: what the manager starts inside the container through the platform's own API.

For clusters without network or shared storage to the manager. The container runs the archive with
`NNI_RUNNER_CHANNEL=exec`, and waits; the manager starts the same archive next to it, as often as needed::

    python3 runner.pyz fill [FOLDER]      stdin: a frame {"record": text, "code": bytes of the archive}, then the tar.gz
                                         stdout: a frame {"filled": true}
    python3 runner.pyz read [FOLDER]      stdin: a frame {"outboxes": {name: offset}, "logs": {name: offset}}
                                         stdout: frames {"event": "greeting", …runner.json}, {"event": "lines",
                                         "outbox", "start", "end", "lines"}, {"event": "log", "file", "offset", "data"
                                         (base64)}, {"event": "exited", …exit.json}, and last, always, {"event": "read"}
    python3 runner.pyz release [FOLDER]   stdin: nothing; the container may end. stdout: a frame {"released": true}
    python3 runner.pyz channel [FOLDER]   stdin: nothing. stdout: a frame {"channel": "push", "exec" or ""}: what a
                                         runner with `NNI_RUNNER_CHANNEL=push-or-exec` has chosen so far

Without a folder it is the container's own, from its environment. Frames are those of `protocol`. Each call is
self-contained and can be repeated safely: an interrupted one is repeated from the stored offsets. `exited` comes only
in a call without further lines, so a manager that has stored all of it is done. A container that has chosen to push can
be read in the same way, in case its posts do not arrive. Exit codes: 0; `EXIT_USAGE` with a sentence on stderr;
`EXIT_CANNOT_START` if the disk fails.
"""

import base64
import json
import os
import sys
import time
from typing import Any, BinaryIO, Dict, List, Optional

from trial_runner import protocol
from trial_runner.outboxes import Outboxes
from trial_runner.runner.client import RETRY_WAITS_S
from trial_runner.wire import code_archive, foreign_files
from trial_runner.wire.backoff import Backoff
from trial_runner.wire.descriptors import Descriptor

_ARCHIVE = ".code.tar.gz"
_COPY_BYTES = 256 * 1024
#: Maximum bytes of lines and logs per call, so that it ends while the command continues writing.
_MOST_BYTES = 16 * 1024 * 1024
_LONGEST_LOOK_S = 1.0
#: Maximum size of `runner.json` and `exit.json`, which name up to `protocol.MOST_OUTBOXES` outboxes.
_REPORT_BYTES = 1024 * 1024
_CHANNEL_BYTES = 16


class _BadCall(Exception):
    """The text says what is wrong and what to do."""


def main(arguments: List[str]) -> int:
    """`arguments`: the verb, and optionally the attempt's folder."""
    verbs = {"fill": _fill, "read": _read, "release": _release, "channel": _channel}
    try:
        if len(arguments) > 2 or arguments[0] not in verbs:
            raise _BadCall("use no arguments, or {} and a folder.".format(", ".join(sorted(verbs))))
        folder = arguments[1] if len(arguments) == 2 else os.environ.get(protocol.ENV_SYSTEM_DIR) or "nni"
        verbs[arguments[0]](os.path.realpath(folder))
    except (_BadCall, code_archive.BadArchive, ValueError, protocol.FrameTooLarge) as error:
        _say(str(error))
        return protocol.EXIT_USAGE
    except OSError as error:
        _say(str(error))
        return protocol.EXIT_CANNOT_START
    return 0


def choose(folder: str, channel: str) -> None:
    """Writes the chosen channel for the manager; empty: undecided. Raises OSError."""
    foreign_files.write_whole(folder, protocol.CHANNEL_FILE, channel.encode(), 0o666)


def open_anew(folder: str) -> None:
    """Removes the release of an earlier container of this folder."""
    foreign_files.remove(folder, protocol.RELEASED_FILE)


def begin(folder: str, code_folder: str, patience_s: float) -> None:
    """Returns when the manager has written parameters and code, or when time is up."""
    open_anew(folder)
    deadline = time.monotonic() + patience_s
    backoff = Backoff(RETRY_WAITS_S, least=0.5)
    while not (os.path.exists(os.path.join(folder, protocol.PARAMETER_FILE)) and os.path.exists(code_folder)):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return
        time.sleep(min(backoff.next_wait(), _LONGEST_LOOK_S, left_s))


def _fill(folder: str) -> None:
    """Writes the code first: parameters mean that it is complete. Existing files stay, as the command may use them."""
    if os.path.exists(os.path.join(folder, protocol.PARAMETER_FILE)):
        return _tell({"filled": True})
    frame = _take_frame(sys.stdin.buffer)
    record, size = frame.get("record"), frame.get("code")
    if not isinstance(record, str) or not isinstance(size, int) or size < 0:
        raise _BadCall('fill: begin with a frame {"record": text, "code": bytes}.')
    os.makedirs(folder, exist_ok=True)
    archive = os.path.join(folder, _ARCHIVE)
    _take_file(sys.stdin.buffer, archive, size)
    code = os.path.join(folder, protocol.CODE_FOLDER)
    os.makedirs(code, exist_ok=True)
    if size:
        code_archive.unpack(archive, code)
    os.unlink(archive)
    foreign_files.write_whole(folder, protocol.PARAMETER_FILE, record.encode(), 0o666)
    _tell({"filled": True})


def _read(folder: str) -> None:
    frame = _take_frame(sys.stdin.buffer)
    outboxes, logs = _offsets(frame, "outboxes"), _offsets(frame, "logs")
    # before the data that they describe
    registration, end = _report(folder, protocol.RUNNER_FILE), _report(folder, protocol.EXIT_FILE)
    if registration is not None:
        _tell(dict(registration, event="greeting"))
        is_ours = end is not None and end.get("container") == registration.get("container")
        is_all = _tell_results(folder, outboxes, is_ours) and all(
            [_tell_log(folder, name, logs.get(name, 0)) for name in protocol.LOG_FILES]
        )
        if end is not None and is_ours and is_all:
            _tell(dict(end, event="exited"))
    elif end is not None:  # the command never started
        _tell(dict(end, event="exited"))
    _tell({"event": "read"})


def _release(folder: str) -> None:
    foreign_files.write_whole(folder, protocol.RELEASED_FILE, b"", 0o666)
    _tell({"released": True})


def _channel(folder: str) -> None:
    try:
        chosen = foreign_files.read(folder, protocol.CHANNEL_FILE, 0, _CHANNEL_BYTES).decode()
    except (OSError, ValueError):
        chosen = ""
    _tell({"channel": chosen})


def _tell_results(folder: str, offsets: Dict[str, int], is_ended: bool) -> bool:
    """Whether that was everything."""
    reader = Outboxes(folder, _say)
    reader.rewind(offsets)
    frame = 0
    for chunk in reader.chunks(is_ended):
        _tell(dict(chunk._asdict(), event="lines"))
        frame += chunk.end - chunk.start
        if frame > _MOST_BYTES:
            return False
    return True


def _tell_log(folder: str, name: str, offset: int) -> bool:
    """Whether all of it was written."""
    try:
        descriptor = foreign_files.open_file(folder, name)
    except OSError:
        return True
    with Descriptor(descriptor):
        last = offset + _MOST_BYTES
        data = os.pread(descriptor, _COPY_BYTES, offset)
        while data and offset < last:
            _tell({"event": "log", "file": name, "offset": offset, "data": base64.b64encode(data).decode()})
            offset += len(data)
            data = os.pread(descriptor, _COPY_BYTES, offset)
        return not data


def _report(folder: str, name: str) -> Optional[Dict[str, Any]]:
    try:
        report = json.loads(foreign_files.read(folder, name, 0, _REPORT_BYTES).decode())
    except (OSError, ValueError):
        return None
    return report if isinstance(report, dict) else None


def _offsets(frame: Dict[str, Any], name: str) -> Dict[str, int]:
    offsets = frame.get(name, {})
    if not isinstance(offsets, dict) or not all(isinstance(size, int) and size >= 0 for size in offsets.values()):
        raise _BadCall("read: {} must be an object of names and offsets.".format(name))
    return offsets


def _take_frame(source: BinaryIO) -> Dict[str, Any]:
    head = source.read(protocol.HEADER_BYTES)
    size = protocol.frame_length(head) if len(head) == protocol.HEADER_BYTES else 0
    body = source.read(size)
    if not size or len(body) < size:
        raise _BadCall("stdin does not contain a frame; see trial_runner.protocol.")
    frame = json.loads(body.decode())
    if not isinstance(frame, dict):
        raise _BadCall("stdin does not contain a frame with an object.")
    return frame


def _take_file(source: BinaryIO, path: str, size: int) -> None:
    with open(path, "wb") as file:
        while size:
            data = source.read(min(size, _COPY_BYTES))
            if not data:
                raise _BadCall("fill: the code ends {} bytes early; send it again.".format(size))
            file.write(data)
            size -= len(data)


def _tell(message: Dict[str, Any]) -> None:
    sys.stdout.buffer.write(protocol.encode(message))
    sys.stdout.buffer.flush()


def _say(sentence: str) -> None:
    sys.stderr.write("trial_runner: {}\n".format(sentence.encode("utf-8", "backslashreplace").decode()))
