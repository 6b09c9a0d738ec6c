"""The wire contract between manager, keeper, runner and trial: names, frames, versions.

Frames: four bytes, big-endian length of what follows, then that many bytes of UTF-8 JSON (NaN and Infinity may stand
bare in it). Every frame is one object. A request carries ``verb`` and ``id``; its answer repeats the ``id`` with either
``result`` or ``error`` (an object of ``kind`` and ``message``). A frame with ``event`` answers nothing.

Keeper, requests (`verb`), everything else in the frame is an argument:

==========  ========================================================  ==============================================
verb        arguments                                                 result
==========  ========================================================  ==============================================
hello       –                                                         {version, pid, boot_id}
list        –                                                         {jobs: {name: job}}
spawn       name, owner, command, environment, directory (cwd),       job
            attempt_directory, files {relative name: text},
            grace_s, from {outbox: offset}
follow      jobs {name: {outbox: offset}}                             {jobs: {name: job}, unknown: [name]}
signal      name, grace_s                                             {} (quiet for ended and unknown jobs); SIGTERM to
                                                                      all its processes, SIGKILL after grace_s
read        attempt_directory, file, offset, limit                    {data (base64), size}
forget      names                                                     {}
facts       –                                                         {cpu_count, memory_bytes,
                                                                      memory_available_bytes, load, disk_bytes,
                                                                      disk_free_bytes, keeper_cpu_s}
==========  ========================================================  ==============================================

A *job* is ``{name, owner, state, pid, started_ms, attempt_directory}`` and, when it has ended, ``{ended_ms, exit_code,
signal, stderr_tail, cpu_s}``. `state` is one of RUNNING, ENDED, LOST; RUNNING until no process of it is left. Of
`exit_code` and `signal` one is set, none when LOST; `cpu_s` is null when the keeper is not the parent. The same name
spawned twice is one job.

Keeper, events:

* ``{"event": "lines", "name", "owner", "outbox", "start", "end", "lines": [text, …]}``: complete records of one outbox
  between two byte offsets. `outbox` is the file's path relative to the attempt's folder. What was between records and
  is none (the rest of a write that was cut short) has offsets but no text, so offsets never leave a gap.
* ``{"event": "ended", "name", "owner", "job"}``: sent after all lines of that job.

Outboxes are the regular files below `outbox/` and NNI's metrics file; names that begin with a dot are ignored. An
outbox that `from` or `follow` does not name is sent from its beginning. `follow` on a job that is followed already
begins again at its offsets; on one that has ended it ends with the ended event, again.

Nothing is sent about a job on a new connection before `spawn` or `follow` names it there. A second connection replaces
the first. Requests are carried out in their order, one spawn at a time; hello, list, read and facts may pass those
that wait. A frame that is no JSON object ends the connection. Kinds of error: ``unavailable`` (disk full, read-only, no
process: try again), ``rejected`` (never), ``invalid`` (a bug of the caller).
"""

import json
import struct
from typing import Any, Dict, List

VERSION = "0.6.0"

#: No frame is larger; a peer that announces more is cut off.
MAX_FRAME = 64 * 1024 * 1024

# Job states of a keeper
RUNNING = "RUNNING"
ENDED = "ENDED"
LOST = "LOST"

# Kinds of error
UNAVAILABLE = "unavailable"
REJECTED = "rejected"
INVALID = "invalid"

#: Folder of outboxes below an attempt's folder, and the outbox that `$NNI_OUTBOX` names.
OUTBOX_FOLDER = "outbox"
MAIN_OUTBOX = "outbox/main.jsonl"
#: Metrics file of NNI's 2.x SDK: ``ME`` + six digits of length + JSON, see `METRICS_FILE_MARK`.
METRICS_FILE = ".nni/metrics"
METRICS_FILE_MARK = b"ME"
METRICS_FILE_DIGITS = 6

PARAMETER_FILE = "parameter.cfg"
STDOUT_FILE = "stdout"
STDERR_FILE = "stderr"
EXIT_FILE = "exit.json"

# Environment of a trial
ENV_PLATFORM = "NNI_PLATFORM"
ENV_EXPERIMENT_ID = "NNI_EXP_ID"
ENV_TRIAL_ID = "NNI_TRIAL_JOB_ID"
ENV_SEQUENCE_ID = "NNI_TRIAL_SEQ_ID"
ENV_SYSTEM_DIR = "NNI_SYS_DIR"
ENV_OUTPUT_DIR = "NNI_OUTPUT_DIR"
ENV_CODE_DIR = "NNI_CODE_DIR"
ENV_OUTBOX = "NNI_OUTBOX"
ENV_COMMAND_CHANNEL = "NNI_TRIAL_COMMAND_CHANNEL"
ENV_GPUS = "CUDA_VISIBLE_DEVICES"
#: Names the job a process belongs to; every child inherits it.
ENV_JOB = "NNI_MANAGER_JOB"

#: What upstream `nni` 3.x imports as its channel; the module stands beside the stand-in.
COMMAND_CHANNEL = "import://nni_channel.OutboxChannel"

_HEADER = struct.Struct(">I")
_to_json = json.JSONEncoder(separators=(",", ":")).encode


class FrameTooLarge(Exception):
    """The peer announced more than `MAX_FRAME`."""


def encode(message: Dict[str, Any]) -> bytes:
    """One frame."""
    body = _to_json(message).encode()
    return _HEADER.pack(len(body)) + body


class Decoder:
    """Cuts a byte stream into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> List[Dict[str, Any]]:
        """Adds bytes; answers the messages that are now complete. Raises FrameTooLarge."""
        self._buffer += data
        messages = []
        start = 0
        while len(self._buffer) - start >= _HEADER.size:
            (length,) = _HEADER.unpack_from(self._buffer, start)
            if length > MAX_FRAME:
                raise FrameTooLarge("a frame of {} bytes was announced".format(length))
            end = start + _HEADER.size + length
            if len(self._buffer) < end:
                break
            messages.append(json.loads(self._buffer[start + _HEADER.size : end]))
            start = end
        del self._buffer[:start]
        return messages
