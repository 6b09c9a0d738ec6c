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
put         file, size, offset, data (base64): the next piece         {bytes}: so many are there, `size` when all are
remove      folder                                                    {}, when it is gone with all that was in it
facts       gpus: none, or the greatest age of a reading, in seconds  {cpu_count, memory_bytes,
                                                                      memory_available_bytes, load, disk_bytes,
                                                                      disk_free_bytes, keeper_cpu_s, gpus: reading}
==========  ========================================================  ==============================================

A *job* is ``{name, owner, state, pid, started_ms, started_ago_ms, attempt_directory, reservation}`` and, when it has
ended, ``{ended_ms, ended_ago_ms, exit_code, signal, stderr_tail, message}``. How long ago it began and ended is
told by the monotonic clock when the frame is made; the other two times are by the machine's clock as it was at
the start. `reservation` is any object that came with the spawn: the manager notes in it which places of the machine the
job has.
`state` is one of PREPARING, RUNNING, ENDED, LOST; RUNNING until no process of it is left. Of `exit_code` and `signal`
one is set, none when LOST, when `message` says what became of it. The same name spawned twice is one job.

A job with `code` is accepted at once, as PREPARING, with ``code: {step, done_bytes, size_bytes}`` in its
description: `step` is unpacked or copied, 0 of 0 bytes: it waits for its turn. Nothing of it is on file before it is
started: a keeper that dies meanwhile never had it. ``signal`` ends it, ``forget`` too.

A *reading* of the machine's GPUs is ``{source, error, is_absent, age_s, cards}``: `source` is nvml or nvidia-smi, and
empty where neither can be asked, as `error` says; `is_absent` when there is neither of the two on the machine. A card
is ``{index, uuid, name, memory_bytes, used_bytes, error, processes}``, a process on it ``{pid, user, memory_bytes,
is_compute, job}``: `user` is empty for one that the keeper cannot see, `is_compute` false for one that only draws
and for the server of NVIDIA's MPS, `job` one of the keeper's own jobs, or null. `used_bytes` counts what the driver
keeps for itself. What a driver does not tell is null. The answer comes within 10 s, with an error when the driver has
not answered by then.

Keeper, events:

* ``{"event": "lines", "name", "owner", "outbox", "start", "end", "lines": [text, …]}``: complete records of one outbox
  between two byte offsets. `outbox` is the file's path relative to the attempt's folder. What was between records and
  is none (the rest of a write that was cut short) has offsets but no text, so offsets never leave a gap.
* ``{"event": "ended", "name", "owner", "job"}``: sent after all lines of that job.
* ``{"event": "changed", "name", "owner", "job"}``: of a PREPARING job: how far it is, or that it runs now.
* ``{"event": "refused", "name", "owner", "kind", "message"}``: a PREPARING job was not started, and is not known any
  more; as the error of a ``spawn``.

Outboxes are the regular files below `outbox/` and NNI's metrics file; names that begin with a dot are ignored. Bytes
of a name that are no printable UTF-8 are spelled ``\\xff``, on every channel, and a backslash is doubled. A file that
became shorter or another one while it was read is the outbox ``NAME/2``, then ``NAME/3``. A record has
at most `MAX_RECORD` bytes, on every channel; the line `TOO_LONG` stands for a longer one. An outbox that `from` or
`follow` does not name is sent from its beginning. `follow` on a job that is followed already begins again at its
offsets; on one that has ended it ends with the ended event, again.

Nothing is sent about a job on a new connection before `spawn` or `follow` names it there. A second connection replaces
the first. Requests are carried out in their order, one spawn at a time; hello, list, read, files and facts may pass
those that wait. That a job runs may be answered a moment later (50 ms), with what follows. A frame that is no JSON
object ends the connection. Kinds of error: ``unavailable`` (disk full, read-only, no process: try again), ``rejected``
(never), ``invalid`` (a bug of the caller).

Runner: HTTP with JSON bodies below `$NNI_MANAGER_URL`, with the attempt's token as bearer. It may hold several
addresses of the one manager, with blanks between: the first that answers is used.

===============  ==================================================================  ================================
route            body                                                                answer
===============  ==================================================================  ================================
POST version     version, python, host, pid, channel (push|pull|exec), container,    accepted, managerVersion
                 outboxes {name: bytes} [, inlineCode true: there is a place for it] [, record, hasCode, stored,
                                                                                     together, inlineCode]
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

An answer counts only if it is the manager's: it has the form above, or ``{"error": sentence}``, and the header
`ANSWER_HEADER` with the manager's name, which the token begins with, the attempt, and what the request named in
`REQUEST_HEADER`: an answer to an earlier request that is sent again is none. Everything else, whatever its status,
comes from a proxy in between: again, with growing waits.

400 and 413: never again in this form. 401, 403, 404: not this attempt's token. 409: the version is refused. 410: the
attempt is decided, whatever it still reports; logs alone are taken on. 429 (with Retry-After), 5xx, no connection:
again, with growing waits.

In brackets is what an earlier manager does not say, and an earlier runner does not read. The answer to the registration
may hold what would be asked for next: `record`, the parameter record; `hasCode`, whether there is code to be fetched;
`inlineCode`, the code itself where it is small, as GET code has it, in base64; `stored`, as GET outboxes has it.
`together` true: the manager takes several posts in one request, whose parts are carried out in their order until one
is not answered 200, or is of lines that are not stored to their end: that answer is the last one, and nothing of what
comes after it was taken. Where the request as a whole fails, the runner makes its posts one by one.

`nowMs` is the runner's clock when it posts, which may be wrong. `undelivered` says what the manager will not get: what
it refused, and what was skipped. `wasStarted` false: the command never ran, and the exit code is the runner's own, one
of `RUNNER_EXITS`. After the command's end come first its results, then the end, then its logs.
In a log's `data` every byte that is no UTF-8 is a question mark, so that its UTF-8 is as long as what it stands for.
`source` names the process of a job with several, when it is not the one that reports.

Containers: a platform may start a second container for an attempt. Each runner that reports makes up an identity when
it starts, registers with it and with the sizes of the outboxes that it found, and names it in the header
`CONTAINER_HEADER` of every request. The newest one registered wins; the others are answered 410. A newcomer that found
less of an outbox than is stored begins afresh: its offsets count from what is stored, and what was stored before is
kept and marked by its epoch.

Pull: where the manager cannot be reached it reads, instead, in the attempt's folder `runner.json` (the version's body),
the outboxes, and `exit.json` (name, pid, state, exit_code, signal, started_ms, ended_ms, container, outboxes
{name: bytes}, logs {name: bytes}). The sizes say what must become visible: storage may show the last file first. A
runner that finds another container in `runner.json` is fenced off. Storage may have a file only once it is closed, and
the command holds its logs and outboxes open. A runner that is told so (`ENV_PIECES`) copies them, while the command
runs, to ``pieces/CONTAINER/FILE/N``, which it closes, and removes those when it ends.

Exec: where we can neither be reached nor share storage, the manager starts the same archive inside the container
through the platform's own API; `exec_channel` has what it is told and what it answers. A runner that may choose
(push-or-exec) tries the manager's addresses for a few seconds, and writes into the file `channel` what it found.
"""

import json
import struct
from typing import Any, Dict, List, Tuple, Union

VERSION = "0.6.0"

#: No frame is larger; a peer that announces more is cut off.
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
#: Most outboxes of one attempt with sizes in a report.
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
#: How CUDA counts them.
ENV_GPU_ORDER = "CUDA_DEVICE_ORDER"
#: Names the job a process belongs to; every child inherits it.
ENV_JOB = "NNI_MANAGER_JOB"

# Environment of a runner
ENV_MANAGER_URL = "NNI_MANAGER_URL"
#: Certificates that the manager's is signed with, PEM on one line: `on_one_line`. Empty: those of the machine alone.
ENV_MANAGER_CA = "NNI_MANAGER_CA"
#: Secret; the runner takes it out of the environment before anything else.
ENV_TOKEN = "NNI_TRIAL_TOKEN"  # noqa: S105 - a name, no token
ENV_COMMAND = "NNI_RUNNER_COMMAND"
ENV_GRACE_S = "NNI_RUNNER_GRACE_S"
#: 1: this process reports metrics; 0: it only forwards its logs.
ENV_REPORTER = "NNI_RUNNER_REPORTER"
#: Name of this process's role, in jobs of several; see `replica`.
ENV_ROLE = "NNI_RUNNER_ROLE"
#: auto, push, push-or-exec, pull or exec.
ENV_CHANNEL = "NNI_RUNNER_CHANNEL"
#: fetch: from the manager; present: the code lies in `NNI_CODE_DIR`.
ENV_CODE = "NNI_RUNNER_CODE"
#: Where they lie on storage that the manager shares: the packed code, and the record of parameters.
ENV_CODE_ARCHIVE = "NNI_RUNNER_CODE_ARCHIVE"
ENV_RECORD = "NNI_RUNNER_RECORD"
#: SHA-256 of that code, in hex: other users may write where it lies.
ENV_CODE_SHA256 = "NNI_RUNNER_CODE_SHA256"
#: Seconds for which a runner with nothing else to do tries to reach the manager.
ENV_DRAIN_S = "NNI_RUNNER_DRAIN_S"
#: 1: the folder is storage that has a file only once it is closed, so what is held open is copied to `PIECES_FOLDER`.
ENV_PIECES = "NNI_RUNNER_PIECES"

PUSH = "push"
PULL = "pull"
EXEC = "exec"
#: The runner tries to reach the manager, and lets itself be filled and read where it cannot.
PUSH_OR_EXEC = "push-or-exec"

#: Of every request of a runner that reports: which container of the attempt it is.
CONTAINER_HEADER = "X-NNI-Container"

#: Made by the runner from the lines that NNI's 2.x SDK prints, see `STDOUT_METRIC_MARK`.
STDOUT_METRICS_OUTBOX = "outbox/stdout-metrics.jsonl"
STDOUT_METRIC_MARK = b"NNISDK_MEb'"
TRIAL_LOG_FILE = "trial.log"
#: What a trial says in its folder: where runners write, and what people may read.
LOG_FILES = (STDOUT_FILE, STDERR_FILE, TRIAL_LOG_FILE)
CODE_FOLDER = "code"
#: After the name of a code archive on a machine: what was unpacked of it.
CODE_TREE = ".tree"
#: Below an attempt's folder: those of the processes that do not report.
REPLICAS_FOLDER = "replicas"
#: After a trial's id: the folder of its checkpoints, which its attempts share, beside theirs.
CHECKPOINT_SUFFIX = "-checkpoint"
#: In such a folder while another trial's is copied into it: what is there is not whole.
CHECKPOINT_COPYING = ".nni-copying"
#: Beside such a folder: what is on its way into it from another machine.
CHECKPOINT_ARRIVING = ".arriving"
#: Below an attempt's folder: an empty one in its place, where nothing outlives the attempt.
CHECKPOINT_FOLDER = "checkpoint"
#: What a runner that is not heard says about itself.
RUNNER_FILE = "runner.json"
#: Below it, for each container, the pieces of each log and outbox while its command runs.
PIECES_FOLDER = "pieces"
#: Bytes of a piece but for the last one of a file. Piece N begins at N times as many.
PIECE_BYTES = 1024 * 1024
#: On the channel exec: everything was read, the container may end.
RELEASED_FILE = "released"
#: Which channel a runner that may choose has chosen: push or exec.
CHANNEL_FILE = "channel"

# Exit codes of a runner without one of its command; otherwise the command's, or 128 + the signal that ended it.
EXIT_USAGE = 64
EXIT_BAD_CODE = 65
EXIT_UNREACHABLE = 75
EXIT_DENIED = 77
EXIT_VERSION_REFUSED = 78
EXIT_FENCED = 79
EXIT_CANNOT_START = 126

#: What runners fail of before there is a command to blame.
RUNNER_EXITS = {
    EXIT_USAGE: "what it was told, or its Python, is not what it needs",
    EXIT_BAD_CODE: "the code archive cannot be used",
    EXIT_UNREACHABLE: "the manager could not be reached",
    EXIT_DENIED: "its token was denied",
    EXIT_FENCED: "the attempt was decided already",
    EXIT_CANNOT_START: "the command cannot be started",
}

#: Sent with every answer to a runner: ``<manager>/<experiment>/<trial>/<attempt>/<request>``, without the last part
#: where the request has no name. Tokens are ``<manager>.<secret>``.
ANSWER_HEADER = "X-NNI-Manager"
#: Sent with every request of a runner: its name, another one for each, at most 64 letters, digits and hyphens.
REQUEST_HEADER = "X-NNI-Request"
#: In a registration: its answer may hold the code; there: the code.
INLINE_CODE = "inlineCode"
#: Route of several posts in one request; in the answer to the registration, whether it is there.
TOGETHER = "together"
#: Sentences in the word about the end about what is not delivered.
MAX_SENTENCES = 20

#: Bytes of one record of an outbox, its newline not counted, on every channel. A longer one is passed over, and this
#: line stands in its place.
MAX_RECORD = 4 * 1024 * 1024
TOO_LONG = '{"type":"too long"}'
#: Name that stands for files beside the outboxes, and its lines: there are more than are looked at, and those that were
#: never read before may hold results; the folder of outboxes, or an outbox that was read before, is gone.
NOT_READ_OUTBOX = "outbox/.not-read"
NOT_READ = '{"type":"not read"}'
GONE = '{"type":"gone"}'
#: Bytes of lines in one post; a single longer line goes alone.
MAX_METRICS_POST = 256 * 1024
#: Bytes of a log in one post.
MAX_LOG_POST = 64 * 1024
#: Bytes of standard error that tell why a command failed.
MAX_STDERR_TAIL = 2048

#: How the last words of a trial begin whose Python cannot read the function that was sent; `stand_in/nni_call.py` has
#: them, too.
OTHER_PYTHON_MARK = "nni_call: the function was sent by Python "
#: What upstream `nni` 3.x imports as its channel; the module stands beside the stand-in.
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
    """Cuts a byte stream into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> List[Dict[str, Any]]:
        """Adds bytes; answers the messages that are now complete. Raises FrameTooLarge."""
        if not self._buffer:  # most come whole
            messages, start = _cut(data)
            self._buffer += data[start:]
            return messages
        self._buffer += data
        messages, start = _cut(self._buffer)
        del self._buffer[:start]
        return messages


def _cut(data: Union[bytes, bytearray]) -> Tuple[List[Dict[str, Any]], int]:
    """The messages that are complete, and how many bytes they are."""
    messages = []
    start, size = 0, len(data)
    while size - start >= HEADER_BYTES:
        body = start + HEADER_BYTES
        end = body + frame_length(data[start:body])
        if size < end:
            break
        messages.append(_from_json(data[body:end].decode()))  # bytes would be guessed at
        start = end
    return messages, start


def on_one_line(pem: str) -> str:
    """A certificate for an environment variable, which must fit into a line."""
    return pem.strip().replace("\r", "").replace("\n", "\\n")


def on_lines(text: str) -> str:
    """The text that `on_one_line` was given."""
    return text.replace("\\n", "\n")
