"""The documented example of PAI-DLC, verbatim, with its own network and mounts.

``unshare --net --mount python -m tests.acceptance.dlc_seed FOLDER``, as root; prints ``done`` at the end.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import certifi

from tests.acceptance.openpai_seed import ADDRESS
from tests.certificates import Authority
from tests.fakes.dlc.containers import Containers, Source
from tests.fakes.dlc.server import serving
from tests.fakes.dlc.service import DlcService
from tests.live_daemon import running_daemon

#: Host of the example's region in the vendor's SDK.
HOST, PORT = "pai-dlc.cn-hangzhou.aliyuncs.com", 443
EXAMPLE = Path(__file__).parents[1] / "config" / "nni_examples" / "seed-dlc.yml"
#: Mount points of the example's storage: on the manager's machine, and in containers.
HERE, THERE = Path("/home/admin/workspace"), Path("/root/data")
_TRIAL = """\
import os, sys
import nni
assert sys.argv[1:] == ["--data_dir", "/root/data/mnist"], sys.argv
assert os.getcwd().startswith("/root/data/"), os.getcwd()
nni.report_final_result(nni.get_next_parameter()["x"])
"""


def main(folder: Path) -> None:
    authority = Authority(folder)
    _name_hosts(folder)
    _trust(folder, authority)
    code = folder / "code"
    code.mkdir()
    (code / "mnist.py").write_text(_TRIAL)
    (code / "search_space.json").write_text('{"x": {"_type": "uniform", "_value": [0, 1]}}')
    with _folders(HERE, THERE, Path("/root/oss")), serving(_service(folder), PORT, authority.issue(HOST)):
        _run_example(folder)
    print("done")


def _run_example(folder: Path) -> None:
    with running_daemon(folder) as daemon:
        daemon.terminate()
        daemon.start("--host", "127.0.0.1", "--port", "0", "--trial-host", ADDRESS)
        body = {
            "config": EXAMPLE.read_text(),
            "directory": str(folder / "code"),
            "environment": dict(os.environ),
            "interpreter": sys.executable,
        }
        id = daemon.call("POST", "/experiments", json=body)["id"]
        daemon.wait_for(id, lambda state: state["counts"].get("SUCCEEDED", 0) >= 2)
        assert (HERE / "nni-work" / id / "db").is_dir(), "where the example wants it"
        assert list(THERE.iterdir()) == [], "only containers mount it there"
        daemon.call("POST", f"/experiments/{id}/stop")


def _service(folder: Path) -> DlcService:
    for name in ("nas", "oss"):
        (folder / name).mkdir()
    _run("mount", "--bind", folder / "nas", HERE)
    sources = {
        "datat56by9n1xt0a": Source(folder=folder / "nas", mount="/root/data/"),
        "dataexample2": Source(folder=folder / "oss", mount="/root/oss/"),
    }
    containers = Containers(folder=folder / "containers", sources=sources)
    return DlcService(folder / "service", containers, keys={"not-a-real-id": "not-a-real-secret"})


def _name_hosts(folder: Path) -> None:
    for command in ("ip link set lo up", f"ip addr add {ADDRESS}/32 dev lo"):
        _run(*command.split())
    (folder / "hosts").write_text(f"127.0.0.1 localhost\n127.0.0.1 {HOST}\n")
    _run("mount", "--bind", folder / "hosts", "/etc/hosts")


def _trust(folder: Path, authority: Authority) -> None:
    trusted = folder / "trusted.pem"
    trusted.write_bytes(Path(certifi.where()).read_bytes() + authority.file.read_bytes())
    _run("mount", "--bind", trusted, certifi.where())
    os.environ["SSL_CERT_FILE"] = str(trusted)


@contextmanager
def _folders(*wanted: Path) -> Iterator[None]:
    """Create mount points; remove the new ones at the end."""
    made = []
    for folder in wanted:
        for one in [*reversed(folder.parents), folder]:
            if not one.exists():
                one.mkdir()
                made.append(one)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", HERE], check=False)
        for one in reversed(made):
            one.rmdir()


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
