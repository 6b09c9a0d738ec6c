"""The cause of a failure, whatever else its program wrote to standard error."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from trial_runner import protocol
from trial_runner.wire import stderr_end
from trial_runner.wire.failure_cause import cause_of, excerpt

pytestmark = pytest.mark.unit

TRACEBACK = """\
Traceback (most recent call last):
  File "/code/go.py", line 12, in <module>
    main(rate=0.3)
    ~~~~^^^^^^^^^^
  File "/code/go.py", line 8, in main
    raise ValueError("expected 3 channels, got 4")
ValueError: expected 3 channels, got 4
"""
ERROR = "ValueError: expected 3 channels, got 4"

NOISE = [
    "/usr/lib/python3/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: There appear to be 6"
    " leaked semaphore objects to clean up at shutdown\n  warnings.warn('resource_tracker: There appear to be %d '\n",
    "  warnings.warn('leaked semaphore objects')\n",
    "sync: uploading run 0.123 took 12.5s\n",
    "WARNING:root:the disk is nearly full\n",
    "2026-01-02 03:04:05,678 - train - INFO - epoch 3: done\n",
    "wandb: Find logs at: ./wandb/run-1/logs\n",
    "\r 20%|##   | 1/5 [00:01<00:04, 0.98it/s]\r 40%|####   | 2/5 [00:02<00:03, 0.99it/s]",
    "[W1128 12:00:00.123 socket.cpp:663] [c10d] The client socket has failed to connect\n",
    "Exception ignored in: <function Pool.__del__ at 0x7f2a>\nTraceback (most recent call last):\n"
    '  File "/usr/lib/python3/pool.py", line 268, in __del__\n    self._change.put(None)\nOSError: handle is closed\n',
]


@pytest.mark.parametrize("noise", [*NOISE, "".join(NOISE)])
def test_noise_after_a_traceback_leaves_the_exception(noise: str) -> None:
    assert cause_of(TRACEBACK + noise) == ERROR
    assert cause_of(noise + TRACEBACK) == ERROR


@pytest.mark.parametrize("noise", [one for one in NOISE if not one.startswith("sync")])
def test_last_meaningful_line_counts_without_traceback(noise: str) -> None:
    assert cause_of(f"epoch 1\ncannot open train.csv\n{noise}") == "cannot open train.csv"


def test_last_line_counts_if_all_lines_are_noise() -> None:
    assert cause_of("WARNING: a\nWARNING: b\n\n") == "WARNING: b"
    assert cause_of(" \n\n") == ""


FRAME = '  File "go.py", line 3, in <module>\n    go()\n'
CHAINED = (
    f"Traceback (most recent call last):\n{FRAME}KeyError: 'rate'\n\n"
    "During handling of the above exception, another exception occurred:\n\n"
    f"Traceback (most recent call last):\n{FRAME}RuntimeError: no rate\n"
)
GROUP = """\
  + Exception Group Traceback (most recent call last):
  |   File "go.py", line 3, in <module>
  |     raise ExceptionGroup("many", [ValueError("a"), KeyError("b")])
  | ExceptionGroup: many (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "go.py", line 1, in f
    |     raise ValueError("a")
    | ValueError: a
    +---------------- 2 ----------------
    | KeyError: 'b'
    +------------------------------------
"""
RANKS = """\
[rank1]: Traceback (most recent call last):
[rank0]: Traceback (most recent call last):
[rank1]:   File "train.py", line 5, in <module>
[rank1]:     main()
[rank0]:   File "train.py", line 7, in <module>
[rank1]: ValueError: bad batch
[rank0]:     main()
[rank0]: RuntimeError: Connection closed by peer [10.0.0.1]:1234
E1128 12:00:00.000000 140 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 0
Traceback (most recent call last):
  File "/usr/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
  rank      : 1 (local_rank: 1)
============================================================
"""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (CHAINED, "RuntimeError: no rate"),
        (GROUP, "ExceptionGroup: many (2 sub-exceptions): ValueError: a"),
        (RANKS, "ValueError: bad batch"),
        (RANKS[RANKS.index("E1128") :], "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"),
        (f"Traceback (most recent call last):\n{FRAME}Error: one\n  two\nthree\nWARNING: x\n", "Error: one"),
        (f"Traceback (most recent call last):\n{FRAME}KeyboardInterrupt\n", "KeyboardInterrupt"),
        (f"Traceback (most recent call last):\n{FRAME}AssertionError\nWARNING: x\n", "AssertionError"),
        (f"{TRACEBACK}Process P-1:\nTraceback (most recent call last):\n{FRAME}KeyboardInterrupt\n", ERROR),
        (f"{TRACEBACK}Exception in thread T-1:\nTraceback (most recent call last):\n{FRAME}OSError: x\n", ERROR),
        (f"Exception in thread T-1:\nTraceback (most recent call last):\n{FRAME}OSError: x\nbye\n", "OSError: x"),
        (TRACEBACK.partition("\n")[2] + NOISE[1], ERROR),
        (TRACEBACK.replace("\n", "\r\n") + NOISE[0].replace("\n", "\r\n"), ERROR),
        ("ERROR:root:failed\n" + TRACEBACK + "WARNING: x\n", ERROR),
        ("".join(f"0: {line}\n" for line in TRACEBACK.splitlines()) + "srun: WARNING: x\n", ERROR),
        (
            'Traceback (most recent call last):\n  File \x1b[35m"go.py"\x1b[0m, line \x1b[35m3\x1b[0m, in f\n'
            "    g\x1b[1;31m()\x1b[0m\n\x1b[1;35mValueError\x1b[0m: \x1b[35mno\x1b[0m\n\x1b[33mWARNING\x1b[0m: x\n",
            "ValueError: no",
        ),
        (
            "  File \"go.py\", line 3\n    print(\n         ^\nSyntaxError: '(' was never closed\nWARNING: x\n",
            "SyntaxError: '(' was never closed",
        ),
        (
            "terminate called after throwing an instance of 'std::runtime_error'\n  what():  no device\n"
            "Aborted (core dumped)\n",
            "std::runtime_error: no device",
        ),
        (TRACEBACK + "terminate called after throwing an instance of 'c10::Error'\n  what():  gone\nAborted\n", ERROR),
        (
            'Fatal Python error: Segmentation fault\n\nCurrent thread 0x1:\n  File "x", line 3 in f\n',
            "Fatal Python error: Segmentation fault",
        ),
        ("go.sh: line 3: train: command not found\n", "go.sh: line 3: train: command not found"),
        ("usage: go.py [-h]\ngo.py: error: unrecognized arguments: --x\n", "go.py: error: unrecognized arguments: --x"),
        (
            "Error: Cannot find module 'x'\n    at Function.resolve (node:1:2)\n    at Module.load (node:3:4)\n",
            "Error: Cannot find module 'x'",
        ),
    ],
)
def test_cause_is_found_in_stderr_of_programs(text: str, cause: str) -> None:
    assert cause_of(text) == cause


@pytest.mark.parametrize(
    "text",
    [
        "bash: ./go.sh: /bin/bash^M: bad interpreter: No such file or directory\n",
        "/usr/bin/env: ‘bash\\r’: No such file or directory\nenv: use -[v]S to pass options in shebang lines\n",
        "env: can't execute 'bash\r': No such file or directory\n",
        "env: bash\r: No such file or directory\n",
    ],
)
def test_windows_line_endings_of_script_are_named(text: str) -> None:
    cause = cause_of(text)
    assert "first line ends with CRLF" in cause and "dos2unix" in cause and "No such file" in cause


def test_missing_interpreter_is_named_with_its_usual_cause() -> None:
    cause = cause_of("bash: line 1: ./go.sh: cannot execute: required file not found\n")
    assert "the interpreter in the script's first line does not exist" in cause and "CRLF" in cause
    other = cause_of("bash: ./go.sh: /opt/python: bad interpreter: No such file or directory\n")
    assert "interpreter in the script's first line does not exist" in other


def test_excerpt_keeps_the_cause_before_much_noise() -> None:
    text = TRACEBACK + "sync: uploaded a part of the run\n" * 200
    found = excerpt(text, 2048)
    assert len(found.encode()) <= 2048 and cause_of(found) == ERROR
    assert found.startswith("Traceback") and found.endswith("uploaded a part of the run\n")


def test_excerpt_keeps_cause_of_long_message_and_deep_stack() -> None:
    message = "x" * 5000 + "\nand more" * 800
    long = f"Traceback (most recent call last):\n{FRAME * 50}RuntimeError: {message}\n"
    found = excerpt(long, 2048)
    assert len(found.encode()) <= 2048 and cause_of(found).startswith("RuntimeError: xxx")
    deep = f"Traceback (most recent call last):\n{FRAME * 50}RuntimeError: no\n"
    assert cause_of(excerpt(deep, 2048)) == "RuntimeError: no"


def test_excerpt_of_plain_text_is_its_end() -> None:
    assert excerpt("a\nb\n", 2048) == "a\nb\n"
    assert excerpt("é" * 3000, 2048) == "é" * 1024


def test_progress_bar_takes_one_line_of_the_end(tmp_path: Path) -> None:
    folder = str(tmp_path)
    with open(f"{folder}/{protocol.STDERR_FILE}", "w", newline="") as file:
        file.write(TRACEBACK + "".join(f"\r{number}%|##| {number}/100 [00:01<00:04, 1it/s]" for number in range(100)))
    found = stderr_end.read(folder)
    assert ERROR in found and "99%|" in found and "98%|" not in found


def test_hundreds_of_tracebacks_are_read_in_little_time() -> None:
    texts = [TRACEBACK * 300, "Traceback (most recent call last):\n" * 2000, '  File "x", line 1, in f\n' * 2500]
    texts += ["x" * 65536, " " * 65536, "1%|" * 20000, "W" * 65536, "\r".join("abc" * 10 for _ in range(2000))]
    begun = time.process_time()
    for text in texts:
        cause_of(text)
    assert time.process_time() - begun < 4
