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
            grace_s, from {outbox: offset}, reservation,
            checkpoint: folder that is made where it is
            missing, code {archive, folder}: put there before
follow      jobs {name: {outbox: offset}}                             {jobs: {name: job}, unknown: [name]}
adopt       name, owner, attempt_directory, grace_s, from,            job; empty: no process of it is there
            reservation: of a job that follow does not know
signal      name, grace_s                                             {} (quiet for ended and unknown jobs); SIGTERM to
                                                                      all its processes, SIGKILL after grace_s
read        attempt_directory, file, offset (negative: from the       {data (base64), size}
            end), limit
files       attempt_directory                                         {files: [name], is_complete}: all below it
forget      names                                                     {}
put         file, size, offset, data (base64): the next piece         {bytes}: bytes there now; `size`: complete
remove      folder                                                    {}, when it and its content are gone
facts       gpus: none, or the greatest age of a reading, in seconds  {cpu_count, memory_bytes,
                                                                      memory_available_bytes, load, disk_bytes,
                                                                      disk_free_bytes, keeper_cpu_s, gpus: reading}
==========  ========================================================  ==============================================

A *job* is ``{name, owner, state, pid, started_ms, started_ago_ms, attempt_directory, reservation}`` and, after its end,
also ``{ended_ms, ended_ago_ms, exit_code, signal, stderr_tail, message}``. The `_ago_` fields are measured by the
monotonic clock when the frame is made; the other two times are by the machine's clock as it was at the start.
`reservation` is any object that came with the spawn: the manager stores in it which places of the machine the job has.
`state` is one of PREPARING, RUNNING, ENDED, LOST; RUNNING until all its processes are gone. One of `exit_code` and
`signal` is set; neither if LOST, when `message` states the reason. The same name spawned twice is one job.

A job with `code` is accepted at once, as PREPARING, with ``code: {step, done_bytes, size_bytes}`` in its
description: `step` is unpacked or copied; 0 of 0 bytes: it is queued. Nothing of it is on file before it is started: a
keeper that dies meanwhile never had it. ``signal`` and ``forget`` end it.

A *reading* of the machine's GPUs is ``{source, error, is_absent, age_s, cards}``: `source` is nvml or nvidia-smi, and
empty if neither answers, as `error` says; `is_absent`: the machine has neither. A card is ``{index, uuid, name,
memory_bytes, used_bytes, error, processes}``, a process on it ``{pid, user, memory_bytes, is_compute, job}``: `user` is
empty if it is hidden from the keeper; `is_compute` is false for one that only draws and for the server of NVIDIA's MPS;
`job` is one of the keeper's own jobs, or null. `used_bytes` includes memory reserved by the driver. Values that a
driver does not report are null. The answer comes within 10 s, with an error if the driver has not answered by then.

Keeper, events:

* ``{"event": "lines", "name", "owner", "outbox", "start", "end", "lines": [text, …]}``: complete records of one outbox
  between two byte offsets. `outbox` is the file's path relative to the attempt's folder. Bytes between records (the
  rest of a truncated write) have offsets but no text, so offsets never leave a gap.
* ``{"event": "ended", "name", "owner", "job"}``: sent after all lines of that job.
* ``{"event": "changed", "name", "owner", "job"}``: of a PREPARING job: how far it is, or that it runs now.
* ``{"event": "refused", "name", "owner", "kind", "message"}``: a PREPARING job did not start, and is unknown from now
  on; fields as in the error of a ``spawn``.

Outboxes are the regular files below `outbox/` and NNI's metrics file; names that begin with a dot are ignored. Bytes
of a name that are not printable UTF-8 are spelled ``\\xff``, on every channel, and a backslash is doubled. A file that
became shorter or was replaced while it was read is the outbox ``NAME/2``, then ``NAME/3``. A record has at most
`MAX_RECORD` bytes, on every channel; the line `TOO_LONG` replaces a longer one. An outbox that is missing in `from` or
`follow` is sent from its beginning. `follow` on a followed job restarts at its offsets; on an ended job it ends with
the ended event, again.

Nothing is sent about a job on a new connection before `spawn` or `follow` names it there. A second connection replaces
the first. Requests are carried out in order, one spawn at a time; hello, list, read, files and facts may overtake
waiting ones. The answer that a job runs may be delayed (50 ms), together with what follows. A frame that is not a JSON
object ends the connection. Kinds of error: ``unavailable`` (disk full, read-only, no process: try again), ``rejected``
(permanent), ``invalid`` (a bug of the caller).

Runner: HTTP with JSON bodies below `$NNI_MANAGER_URL`, with the attempt's token as bearer. The variable may have
several addresses of the manager, separated by blanks: the first that answers is used.

===============  ==================================================================  ================================
route            body                                                                answer
===============  ==================================================================  ================================
POST version     version, python, host, pid, channel (push|pull|exec), container,    accepted, managerVersion
                 outboxes {name: bytes} [, inlineCode true: there is a place for it] [, record, hasCode, stored,
                                                                                     together, stop, inlineCode]
GET parameters   –                                                                   the parameter record
GET code         –                                                                   tar.gz; 204: none to be fetched
GET outboxes     –                                                                   {outbox: bytes stored}
POST status      event "started", pid, startedMs, nowMs; or event "exited",          stop, graceS
                 exitCode, signal, stderrTail, startedMs, endedMs, nowMs,            [, everyS]
                 outboxes {name: bytes}, undelivered [sentence], wasStarted
POST metrics     outbox, start, end, lines (as the keeper's event)                   offset: bytes stored
POST log         file (stdout|stderr|trial.log), offset, data [, source]             offset: bytes stored
POST heartbeat   reporter                                                            stop, graceS [, everyS]
POST together    posts [{route, body}]                                               answers [{status, body
                                                                                     [, retryAfterS]}]
===============  ==================================================================  ================================

An answer counts only if it comes from the manager: it has the form above, or ``{"error": sentence}``, and the header
`ANSWER_HEADER` with the manager's name (the beginning of the token), the attempt, and the request's `REQUEST_HEADER`: a
replayed answer to an earlier request does not count. Any other answer, with any status, comes from a proxy: the request
is repeated, with growing waits.

400 and 413: permanent for this form. 401, 403, 404: not this attempt's token. 409: the version is refused. 410: the
attempt is closed, whatever it still reports; only logs are accepted. 429 (with Retry-After), 5xx, no connection: the
request is repeated, with growing waits.

Fields in brackets are missing from an earlier manager, and ignored by an earlier runner. The answer to the registration
may contain the next answers: `record`, the parameter record; `hasCode`, whether there is code to fetch; `inlineCode`,
the code itself if it is small, as from GET code, in base64; `stored`, as from GET outboxes. `together` true: the
manager accepts several posts in one request. Its parts are carried out in order until one is not answered 200, or has
lines that are not stored completely: that answer is the last one, and later parts were not carried out. If the whole
request fails, the runner makes its posts one by one. `stop` true: the job is cancelled, and its command not started.

`nowMs` is the runner's clock at the post, which may be wrong. `undelivered` lists what the manager will not get:
refused and skipped data. `wasStarted` false: the command never ran, and the exit code is the runner's own, one of
`RUNNER_EXITS`. After the command's end come first its results, then the end, then its logs. In a log's `data` every
invalid UTF-8 byte becomes a question mark, so its UTF-8 has the same length. `source` names the process in jobs with
several, except the reporting one.

Containers: a platform may start a second container for an attempt. Each reporting runner creates an identity when it
starts, registers with it and with the sizes of the outboxes that it found, and sends it in the header
`CONTAINER_HEADER` of every request. The newest one registered wins; the others are answered 410. Each new container
starts an epoch, which marks its results. One that found less of an outbox than is stored starts over: its offsets are
added to what is stored. In Slurm, where a job may run several times under its id, the identity is `container_of_run`.

Pull: if the manager cannot be reached, it reads in the attempt's folder `runner.json` (the version's body), the
outboxes, and `exit.json` (name, pid, state, exit_code, signal, started_ms, ended_ms, container, outboxes {name: bytes},
logs {name: bytes}). The sizes say what must become visible: storage may show the last file first. A runner that finds
another container in `runner.json` is fenced off. Some storage shows a file only after it is closed, but the command
keeps its logs and outboxes open. With `ENV_PIECES` the runner copies them, while the command runs, to closed files
``pieces/CONTAINER/FILE/N``, and removes those when it ends.

Exec: without network or shared storage, the manager starts the same archive inside the container through the platform's
own API; `exec_channel` describes arguments and answers. A runner that may choose (push-or-exec) tries the manager's
addresses for a few seconds, and writes the result into the file `channel`.
"""

import json
import struct
from typing import Any, Dict, List, Tuple, Union

VERSION = "0.6.0"

#: Maximum size of a frame; a peer that announces more is disconnected.
MAX_FRAME = 64 * 1024 * 1024

# Job states of a keeper
PREPARING = "PREPARING"
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
#: Maximum number of outboxes of one attempt with sizes in a report.
MOST_OUTBOXES = 1000

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
ENV_CHECKPOINT_DIR = "NNI_CHECKPOINT_DIR"
ENV_OUTBOX = "NNI_OUTBOX"
ENV_COMMAND_CHANNEL = "NNI_TRIAL_COMMAND_CHANNEL"
ENV_GPUS = "CUDA_VISIBLE_DEVICES"
#: CUDA's order of devices.
ENV_GPU_ORDER = "CUDA_DEVICE_ORDER"
#: Name of the job that a process belongs to; every child inherits it.
ENV_JOB = "NNI_MANAGER_JOB"

# Environment of a runner
ENV_MANAGER_URL = "NNI_MANAGER_URL"
#: Certificates that signed the manager's, PEM on one line: `on_one_line`. Empty: the machine's only.
ENV_MANAGER_CA = "NNI_MANAGER_CA"
#: Secret; the runner removes it from the environment before anything else.
ENV_TOKEN = "NNI_TRIAL_TOKEN"  # noqa: S105 - a name, no token
ENV_COMMAND = "NNI_RUNNER_COMMAND"
ENV_GRACE_S = "NNI_RUNNER_GRACE_S"
#: 1: this process reports metrics; 0: it only forwards its logs.
ENV_REPORTER = "NNI_RUNNER_REPORTER"
#: Name of this process's role, in jobs of several; see `replica`.
ENV_ROLE = "NNI_RUNNER_ROLE"
#: auto, push, push-or-exec, pull or exec.
ENV_CHANNEL = "NNI_RUNNER_CHANNEL"
#: fetch: from the manager; present: the code is in `NNI_CODE_DIR`.
ENV_CODE = "NNI_RUNNER_CODE"
#: Paths on storage that the manager shares: the packed code, and the record of parameters.
ENV_CODE_ARCHIVE = "NNI_RUNNER_CODE_ARCHIVE"
ENV_RECORD = "NNI_RUNNER_RECORD"
#: SHA-256 of that code, in hex: other users may have write access to it.
ENV_CODE_SHA256 = "NNI_RUNNER_CODE_SHA256"
#: Seconds for which an idle runner tries to reach the manager.
ENV_DRAIN_S = "NNI_RUNNER_DRAIN_S"
#: 1: the folder's storage shows files only after they are closed, so open files are copied to `PIECES_FOLDER`.
ENV_PIECES = "NNI_RUNNER_PIECES"
#: Temporary folder with the copy of the runner that runs; the runner removes it at its end.
ENV_TEMPORARY = "NNI_RUNNER_TEMPORARY"

PUSH = "push"
PULL = "pull"
EXEC = "exec"
#: The runner tries to reach the manager, and otherwise lets the manager write and read in its container.
PUSH_OR_EXEC = "push-or-exec"

#: Header of every request of a reporting runner: its container's identity.
CONTAINER_HEADER = "X-NNI-Container"

#: Written by the runner from the lines that NNI's 2.x SDK prints, see `STDOUT_METRIC_MARK`.
STDOUT_METRICS_OUTBOX = "outbox/stdout-metrics.jsonl"
STDOUT_METRIC_MARK = b"NNISDK_MEb'"
TRIAL_LOG_FILE = "trial.log"
#: Logs in a trial's folder: written by runners, readable for users.
LOG_FILES = (STDOUT_FILE, STDERR_FILE, TRIAL_LOG_FILE)
CODE_FOLDER = "code"
#: Suffix after the name of a code archive on a machine: its unpacked content.
CODE_TREE = ".tree"
#: Below an attempt's folder: folders of the processes that do not report.
REPLICAS_FOLDER = "replicas"
#: Suffix after a trial's id: the folder of its checkpoints, shared by its attempts, next to theirs.
CHECKPOINT_SUFFIX = "-checkpoint"
#: In such a folder while another trial's is copied into it: the content is incomplete.
CHECKPOINT_COPYING = ".nni-copying"
#: Next to such a folder: a copy that is arriving from another machine.
CHECKPOINT_ARRIVING = ".arriving"
#: Below an attempt's folder: an empty replacement if nothing outlives the attempt.
CHECKPOINT_FOLDER = "checkpoint"
#: The registration of a runner that cannot reach the manager.
RUNNER_FILE = "runner.json"
#: Below it, for each container, the pieces of each log and outbox while its command runs.
PIECES_FOLDER = "pieces"
#: Size of a piece in bytes, except the last one of a file. Piece N begins at N times this size.
PIECE_BYTES = 1024 * 1024
#: On the channel exec: everything was read, the container may end.
RELEASED_FILE = "released"
#: The channel that a choosing runner has chosen: push or exec.
CHANNEL_FILE = "channel"
#: In the attempt's folder once the platform has announced that it will take the job away; `stand_in/nni` looks at it.
ENDING_FILE = "ending"
#: In the attempt's folder once the manager has cancelled the job: a runner does not start the command any more.
STOP_FILE = "stop"

# Exit codes of a runner whose command did not run; otherwise the command's, or 128 + the signal that ended it
EXIT_USAGE = 64
EXIT_BAD_CODE = 65
EXIT_UNREACHABLE = 75
EXIT_DENIED = 77
EXIT_VERSION_REFUSED = 78
EXIT_FENCED = 79
EXIT_STOPPED = 80
EXIT_CANNOT_START = 126

#: Failures of runners before the command started.
RUNNER_EXITS = {
    EXIT_USAGE: "its settings or its Python are not valid",
    EXIT_BAD_CODE: "the code archive is not usable",
    EXIT_UNREACHABLE: "the manager could not be reached",
    EXIT_DENIED: "its token was denied",
    EXIT_FENCED: "the attempt was already closed",
    EXIT_STOPPED: "the job was already cancelled",
    EXIT_CANNOT_START: "the command could not start",
}

#: Sent with every answer to a runner: ``<manager>/<experiment>/<trial>/<attempt>/<request>``, without the last part
#: if the request has no name. Tokens are ``<manager>.<secret>``.
ANSWER_HEADER = "X-NNI-Manager"
#: Sent with every request of a runner: a unique name, at most 64 letters, digits and hyphens.
REQUEST_HEADER = "X-NNI-Request"
#: In a registration: its answer may contain the code; in the answer: the code.
INLINE_CODE = "inlineCode"
#: Route of several posts in one request; in the answer to the registration, whether it exists.
TOGETHER = "together"
#: Sentences in the report of the end about undelivered data.
MAX_SENTENCES = 20

#: Maximum size of an outbox record in bytes, without its newline, on every channel. This line replaces a longer one.
MAX_RECORD = 4 * 1024 * 1024
TOO_LONG = '{"type":"too long"}'
#: Pseudo-outbox and its line: there are more files than the limit, and unread ones may contain results; or the folder
#: of outboxes, or an outbox that was read before, is gone.
NOT_READ_OUTBOX = "outbox/.not-read"
NOT_READ = '{"type":"not read"}'
GONE = '{"type":"gone"}'
#: Maximum bytes of lines in one post; a single longer line is sent alone.
MAX_METRICS_POST = 256 * 1024
#: Maximum bytes of a log in one post.
MAX_LOG_POST = 64 * 1024
#: Maximum bytes of standard error in a report.
MAX_STDERR_TAIL = 2048

#: Start of the last words of a trial whose Python cannot read the sent function; `stand_in/nni_call.py` has a copy.
OTHER_PYTHON_MARK = "nni_call: the function was sent by Python "
#: The module that upstream `nni` 3.x imports as its channel, next to the stand-in.
COMMAND_CHANNEL = "import://nni_channel.OutboxChannel"

_HEADER = struct.Struct(">I")
#: Bytes before a frame's body.
HEADER_BYTES = _HEADER.size
_to_json = json.JSONEncoder(separators=(",", ":")).encode
_from_json = json.JSONDecoder().decode


class FrameTooLarge(Exception):
    """The peer announced more than `MAX_FRAME`."""


def encode(message: Dict[str, Any]) -> bytes:
    """The message as one frame."""
    body = _to_json(message).encode()
    return _HEADER.pack(len(body)) + body


def frame_length(head: Union[bytes, bytearray]) -> int:
    """Bytes of the body that a frame's head announces. Raises FrameTooLarge."""
    (length,) = _HEADER.unpack(head)
    if length > MAX_FRAME:
        raise FrameTooLarge("a frame of {} bytes was announced".format(length))
    return int(length)


class Decoder:
    """Splits a byte stream into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> List[Dict[str, Any]]:
        """Adds bytes; returns the messages that are now complete. Raises FrameTooLarge."""
        if not self._buffer:  # most messages arrive complete
            messages, start = _cut(data)
            self._buffer += data[start:]
            return messages
        self._buffer += data
        messages, start = _cut(self._buffer)
        del self._buffer[:start]
        return messages


def _cut(data: Union[bytes, bytearray]) -> Tuple[List[Dict[str, Any]], int]:
    """The complete messages, and their total size in bytes."""
    messages = []
    start, size = 0, len(data)
    while size - start >= HEADER_BYTES:
        body = start + HEADER_BYTES
        end = body + frame_length(data[start:body])
        if size < end:
            break
        messages.append(_from_json(data[body:end].decode()))  # for bytes, json would guess the encoding
        start = end
    return messages, start


def container_of_run(job_id: int, restarts: int) -> str:
    """Identity of the container that is a run of a batch job, for its runner and for a manager that only reads it.

    `restarts`: how often the service has run the job before.
    """
    return "{:012x}{:04x}".format(job_id, restarts)


def on_one_line(pem: str) -> str:
    """A certificate for an environment variable, which must fit into a line."""
    return pem.strip().replace("\r", "").replace("\n", "\\n")


def on_lines(text: str) -> str:
    """The text that `on_one_line` was given."""
    return text.replace("\\n", "\n")
