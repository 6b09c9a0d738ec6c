"""Names of pods: without DNS, only `nslookup` in a pod finds another pod's address."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.kubernetes.store import Object

_NSLOOKUP = """#!/bin/sh
found=$(sed -n "s/^$1 //p" "{hosts}" | tail -n 1)
[ -n "$found" ] || {{ echo "** server can't find $1: NXDOMAIN" >&2; exit 1; }}
echo "Name: $1"
echo "Address 1: $found"
"""


def commands(folder: Path) -> Path:
    """A folder for `PATH`; created once."""
    found = folder / "bin"
    if not found.exists():
        found.mkdir()
        (found / "nslookup").write_text(_NSLOOKUP.format(hosts=folder / "hosts"))
        (found / "nslookup").chmod(0o755)
    return found


def hosts(folder: Path) -> Path:
    """The file of all names; created once."""
    found = folder / "hosts"
    found.touch()
    return found


def add(folder: Path, pod: Object, address: str) -> None:
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    with (folder / "hosts").open("a") as hosts:
        hosts.writelines(f"{known} {address}\n" for known in (name, f"{name}.{namespace}.svc"))
