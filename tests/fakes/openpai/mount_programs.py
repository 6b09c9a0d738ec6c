"""`mount.nfs`, `mount.nfs4` and `blobfuse2` in a container: mount a folder of the simulated network.

Installed in `/sbin` of images with the program; it is the only file of the tests there. Messages and exit codes are
those of the real programs in nfs-utils (`utils/mount`) and azure-storage-fuse (`cmd`).
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
from typing import NoReturn

_TOLD = "/run/cluster/told"
_NETWORK = "/run/cluster/network.json"
_SYS_ADMIN = 21
_BIND, _REMOUNT, _READ_ONLY = 4096, 32, 1
_FIELDS = {"account": "account-?[nN]ame", "key": "account-?[kK]ey", "container": "container(?:-?[nN]ame)?"}


def nfs(name: str, words: list[str]) -> None:
    """`mount.nfs SERVER:/PATH POINT [-o OPTIONS]`, in the order of the program's checks and the kernel's."""
    if len(words) < 2:
        _fail(f"usage: {name} remotetarget dir [-rvVwfnsih] [-o nfsoptions]", 1)
    source, point = words[:2]
    if not os.path.exists(point):
        _fail(f"{name}: mount point {point} does not exist", 1)
    if not os.path.isdir(point):
        _fail(f"{name}: mount point {point} is not a directory", 1)
    server, _, path = source.partition(":")
    path = os.path.normpath(f"/{path}")
    exports = [one.split(":", 1) for one in _network()["exports"]]
    if server not in [known for known, _ in exports]:
        _fail(f"{name}: Failed to resolve server {server}: Name or service not known")
    if not _may_mount():
        _fail(f"{name}: Operation not permitted")
    if _fault() == "denied" or not any(_within(path, export) for known, export in exports if known == server):
        _fail(f"{name}: access denied by server while mounting {source}")
    export = max((export for known, export in exports if known == server and _within(path, export)), key=len)
    folder = os.path.join(_network()["exports"][f"{server}:{export}"], os.path.relpath(path, export))
    if not os.path.isdir(folder):
        _fail(f"{name}: mounting {source} failed, reason given by server: No such file or directory")
    _show(folder, point, is_read_only="ro" in ",".join(words[2:]).split(","))


def blobfuse(name: str, words: list[str]) -> None:
    """`blobfuse2 mount POINT --config-file=FILE`, and `blobfuse2 unmount POINT`."""
    if words[:1] == ["--version"]:
        print(f"{name} version 2.3.0")
        return
    if len(words) < 2 or words[0] not in ("mount", "unmount"):
        _fail(f'Error: unknown command "{" ".join(words[:1])}" for "{name}"', 1)
    if words[0] == "unmount":
        os.execvp("umount", ["umount", words[1]])
    point, found = words[1], _config(words[2:])
    if not os.path.isdir(point):
        _fail("Error: mount directory does not exist", 1)
    if os.listdir(point):
        _fail("Error: mount directory is not empty", 1)
    container = _network()["blobs"].get(f"{found['account']}/{found['container']}")
    if container is None or container["key"] != found["key"] or _fault() == "denied":
        said = "failed to authenticate credentials for azstorage"
        _fail(f"Error: failed to initialize new pipeline [{said}]", 1)
    if not _may_mount():
        _fail("Error: fuse: mount failed: Operation not permitted", 1)
    _show(container["folder"], point, is_read_only="--read-only" in words)


def _config(words: list[str]) -> dict[str, str]:
    """Settings from a config file, YAML or JSON, or from the program's variables."""
    text, rest = "", iter(words)
    for word in rest:
        if word.startswith("--config-file"):
            path = word.partition("=")[2] or next(rest)
            if not os.path.exists(path):
                _fail(f"Error: invalid config file [open {path}: no such file or directory]", 1)
            with open(path, encoding="utf-8") as file:
                text = file.read()
    variables = ("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_ACCOUNT_CONTAINER")
    found = dict(zip(_FIELDS, (os.environ.get(one, "") for one in variables), strict=True))
    for field, pattern in _FIELDS.items():
        if told := re.search(rf"""(?m)(?:^|[\s{{,"']){pattern}["']?\s*:\s*["']?([^\s"',}}]+)""", text):
            found[field] = told[1]
    return found


def _network() -> dict[str, dict[str, dict[str, str] | str]]:
    with open(_NETWORK, encoding="utf-8") as file:
        told: dict[str, dict[str, dict[str, str] | str]] = json.load(file)
    return told


def _fault() -> str:
    """The current network fault. While the server does not answer, waits and returns the state afterwards."""
    while (fault := _read(f"{_TOLD}/fault")) == "hang":
        _read(f"{_TOLD}/again")  # a pipe that is opened for writing when the fault ends
    return fault


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _may_mount() -> bool:
    effective = re.search(r"(?m)^CapEff:\s*(\w+)", _read("/proc/self/status"))
    return effective is not None and bool(int(effective[1], 16) >> _SYS_ADMIN & 1)


def _within(path: str, export: str) -> bool:
    return os.path.commonpath([path, export]) == os.path.normpath(export)


def _show(folder: str, point: str, *, is_read_only: bool) -> None:
    system = ctypes.CDLL(None, use_errno=True)
    flags = [_BIND, *([_BIND | _REMOUNT | _READ_ONLY] if is_read_only else [])]
    for flag in flags:
        if system.mount(os.fsencode(folder), os.fsencode(point), None, flag, None):
            _fail(f"{os.path.basename(sys.argv[0])}: {os.strerror(ctypes.get_errno())}")


def _fail(words: str, code: int = 32) -> NoReturn:
    print(words, file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    called = os.path.basename(sys.argv[0])
    (nfs if called.startswith("mount.") else blobfuse)(called, sys.argv[1:])
