"""The lite trial: Python without an SDK that reads its parameters and writes one result.

With NNI 3.0 it uses NNI's HTTP channel, in the smallest possible program without an HTTP library.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

#: Resolved path: a `python3` that is a shell shim costs more than the trial.
PYTHON = os.path.realpath(sys.executable)
COMMAND = f"{PYTHON} -I -S lite.py"
SOURCE = """
import json, os
parameters = json.load(open(os.environ["NNI_SYS_DIR"] + "/parameter.cfg"))["parameters"]
with open(os.environ["NNI_OUTBOX"], "a") as outbox:
    outbox.write(json.dumps({"type": "final", "value": parameters["x"]}) + "\\n")
"""
SPACE = {"x": {"_type": "uniform", "_value": [0, 1]}}

#: Shared code of NNI's trials: one connection, `next_parameters()` and `report(type, number, value)`.
_NNI_CHANNEL = """
import _socket, json, os
place, _, path = os.environ["NNI_TRIAL_COMMAND_CHANNEL"][7:].partition("/")
manager = _socket.socket()
manager.connect(("127.0.0.1", int(place.partition(":")[2])))
def ask(method, body=""):
    request = "%s /%s HTTP/1.1\\r\\nHost: %s\\r\\nContent-Type: application/json\\r\\nContent-Length: %d\\r\\n\\r\\n%s"
    manager.send((request % (method, path, place, len(body), body)).encode())
    answer = b""
    while b"\\r\\n\\r\\n" not in answer:
        answer += manager.recv(65536)
    head, _, content = answer.partition(b"\\r\\n\\r\\n")
    length = [int(line[15:]) for line in head.split(b"\\r\\n") if line[:15].lower() == b"content-length:"]
    while length and len(content) < length[0]:
        content += manager.recv(65536)
    return head.split()[1], content
def next_parameters():
    ask("PUT", json.dumps({"type": "request_parameter"}))
    status, content = ask("GET")
    while status == b"408":
        status, content = ask("GET")
    return json.loads(json.loads(content)["parameter"])["parameters"]
def report(type, number, value):
    metric = {"parameter_id": 0, "trial_job_id": os.environ["NNI_TRIAL_JOB_ID"], "type": type, "sequence": number,
              "value": json.dumps(value)}
    ask("PUT", json.dumps({"type": "metric", "metric": json.dumps(metric)}))
"""
NNI_COMMAND = f"{PYTHON} -I -S lite_nni.py"
_NNI_SOURCE = _NNI_CHANNEL + 'report("FINAL", 0, next_parameters()["x"])\n'
#: Argument: number of intermediate results. It keeps running, because NNI loses results not stored before the end.
NNI_BURST_COMMAND = f"{PYTHON} -I -S burst_nni.py"
_NNI_BURST = (
    _NNI_CHANNEL
    + """
import sys, time
next_parameters()
for number in range(int(sys.argv[1])):
    report("PERIODICAL", number, 0.123456)
time.sleep(1000)
"""
)


def write(folder: Path) -> None:
    """Write the trials' files for the commands."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lite.py").write_text(SOURCE)
    (folder / "lite_nni.py").write_text(_NNI_SOURCE)
    (folder / "burst_nni.py").write_text(_NNI_BURST)
