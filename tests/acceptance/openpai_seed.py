"""The documented example of OpenPAI, verbatim except for name and token, with its own network and mounts.

``unshare --net --mount python -m tests.acceptance.openpai_seed FOLDER``, as root; prints ``done`` at the end.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.fakes.process import running
from tests.live_daemon import running_daemon

ADDRESS = "123.123.123.123"
EXAMPLE = Path(__file__).parents[1] / "config" / "nni_examples" / "seed-openpai.yml"
_TRIAL = """\
import os
import nni
x = nni.get_next_parameter()["x"]
assert os.getcwd().startswith("/mnt/confignfs-data/"), os.getcwd()
nni.report_final_result(x)
"""


def main(folder: Path) -> None:
    for command in ("ip link set lo up", f"ip addr add {ADDRESS}/32 dev lo"):
        subprocess.run(command.split(), check=True)
    (folder / "code").mkdir()
    (folder / "code" / "trial.py").write_text(_TRIAL)
    (folder / "search_space.json").write_text('{"x": {"_type": "uniform", "_value": [0, 1]}}')
    (folder / "storage").mkdir()
    arguments = ["--host", ADDRESS, "--port", "80"]
    with running("openpai", folder / "cluster", *arguments) as fake, running_daemon(folder) as daemon:
        daemon.terminate()
        daemon.start("--host", "127.0.0.1", "--port", "0", "--trial-host", ADDRESS)
        fake.control(
            "users",
            users={"alice": {"tokens": ["not-a-real-token"]}},
            storages={"confignfs-data": str(folder / "storage")},
        )
        text = f"experimentWorkingDirectory: {daemon.data}\n{EXAMPLE.read_text()}"
        body = {
            "config": text,
            "directory": str(folder),
            "environment": dict(os.environ),
            "interpreter": sys.executable,
        }
        id = daemon.call("POST", "/experiments", json=body)["id"]
        daemon.wait_for(id, lambda state: state["counts"].get("SUCCEEDED", 0) >= 2)
        assert {job["name"].split("_")[2] for job in fake.control("jobs")} == {id}
        assert not list(Path("/mnt").glob("confignfs-data")), "only containers mount it there"
    print("done")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
