"""The lite trial: Python without any SDK that reads its parameters and writes one metric record.

With NNI 3.0 the same has to go over NNI's HTTP channel: the smallest program that does, without an HTTP library.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

#: Resolved first: a `python3` that is a shell shim costs more than the trial.
PYTHON = os.path.realpath(sys.executable)
COMMAND = f"{PYTHON} -I -S lite.py"
SOURCE = """
import json, os
parameters = json.load(open(os.environ["NNI_SYS_DIR"] + "/parameter.cfg"))["parameters"]
with open(os.environ["NNI_OUTBOX"], "a") as outbox:
    outbox.write(json.dumps({"type": "final", "value": parameters["x"]}) + "\\n")
"""
SPACE = {"x": {"_type": "uniform", "_value": [0, 1]}}

#: What NNI's trials share: one connection, `next_parameters()` and `report(type, number, value)`.
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
#: Takes the number of intermediate results. It stays: what NNI has not stored when a trial ends, is lost.
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
    """Puts the trials where the commands find them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lite.py").write_text(SOURCE)
    (folder / "lite_nni.py").write_text(_NNI_SOURCE)
    (folder / "burst_nni.py").write_text(_NNI_BURST)
