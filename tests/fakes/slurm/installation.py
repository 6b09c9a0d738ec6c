"""Where the programs of a cluster are: this machine's own Slurm, or that of another Debian suite in a root of its own.

`python -m tests.fakes.slurm` makes the roots, which stay for later runs. A cluster sees the folders of this machine in
its root, except those of packages. Mounts are in a namespace of the cluster: nothing of them stays.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

#: This machine's own Slurm, as a version.
OWN = "own"
#: Version of Slurm → the Debian suite that has it.
SUITES = {"24.11": "trixie"}
VERSIONS = (OWN, *SUITES)
#: `PATH` with the programs of the administrator.
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
#: Programs that a cluster needs of this machine, and of a machine's own Slurm.
_EVERYWHERE = ("mariadbd", "unshare", "nsenter", "chroot")
_SLURM = ("munged", "slurmctld", "slurmd", "sbatch", "slurmdbd")
_PACKAGES = "slurmctld slurmd slurm-client munge slurmdbd slurm-wlm-mysql-plugin python3 procps"
_CLIENTS = ("sbatch", "squeue", "sacct", "sacctmgr", "scancel", "scontrol", "sinfo", "srun")
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "nni-manager-tests")
#: Waits in a mount namespace in which the root `$0` has this machine's folders, outside those of its packages.
_NAMESPACE = """\
mount --make-rprivate / || exit 1
for folder in /*; do
    case $folder in /usr|/bin|/sbin|/lib*|/etc|/var|/boot) continue ;; esac
    [ -d "$folder" ] && [ ! -L "$folder" ] || continue
    mkdir -p "$0$folder" && mount --rbind "$folder" "$0$folder" || exit 1
done
for file in passwd group shadow hosts; do mount --bind "/etc/$file" "$0/etc/$file" || exit 1; done
touch "$1"
exec sleep infinity
"""


def root_of(version: str) -> Path:
    """The root of another suite; for the machine's own Slurm that of the machine."""
    return Path("/") if version == OWN else _CACHE / f"slurm-{SUITES[version]}"


def missing(version: str = OWN) -> str:
    """Why no cluster of this version can be started here; empty: it can."""
    if os.getuid() != 0:
        return "Slurm: start it as root"
    needed = (*_EVERYWHERE, *(_SLURM if version == OWN else ()))
    absent = [name for name in needed if shutil.which(name, path=PATH) is None]
    if absent:
        return f"Slurm: {', '.join(absent)} missing; run `sh .ci/debian-packages with-slurm`"
    if not (root_of(version) / "usr/sbin/slurmctld").exists():
        return f"Slurm {version}: its root is missing; run `python -m tests.fakes.slurm`"
    return ""


def make_root(version: str) -> None:
    """Makes the root of another suite, unless it is there. Takes minutes, and needs Debian's archive."""
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "slurm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (root_of(version) / "usr/sbin/slurmctld").exists():
            return
        with tempfile.TemporaryDirectory(prefix=".slurm-", dir=_CACHE) as folder:
            made = Path(folder, "root")
            packages = f"--include={','.join(_PACKAGES.split())}"
            subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", packages, SUITES[version], made], check=True)
            shutil.rmtree(root_of(version), ignore_errors=True)
            made.rename(root_of(version))


class Installation:
    """The programs of a version, for one cluster. `folder`: of the cluster."""

    def __init__(self, version: str, folder: Path) -> None:
        self._root = root_of(version)
        self._is_own = version == OWN
        self._folder = folder
        #: Process id of what holds the mounts; 0: there are none.
        self._holder = 0

    @property
    def path(self) -> str:
        """`PATH` of its clients."""
        return PATH if self._is_own else f"{self._folder}/bin:{PATH}"

    @property
    def prefix(self) -> str:
        """Path of its root, to be put in front of absolute paths."""
        return "" if self._is_own else str(self._root)

    @property
    def holder(self) -> Sequence[str]:
        """The command that holds its mounts until it is killed; empty: none is needed. It makes `is_mounted` true."""
        if self._is_own:
            return ()
        return ("unshare", "--mount", "sh", "-c", _NAMESPACE, str(self._root), str(self._mark))

    def is_mounted(self) -> bool:
        return self._mark.exists()

    def enter(self, holder: int) -> None:
        """Makes client programs. `holder`: process id of the command."""
        self._holder = holder
        front = self._folder / "bin"
        front.mkdir(mode=0o755)
        for name in _CLIENTS:
            inside = " ".join((*self._inside(), "env", '-C "$PWD"', f"/usr/bin/{name}"))
            (front / name).write_text(f'#!/bin/sh\nexec {inside} "$@"\n')
            (front / name).chmod(0o755)

    def program(self, command: Sequence[str]) -> list[str]:
        """A command line that replaces itself by one of its programs."""
        return list(command) if self._is_own else [*self._inside(), *command]

    def outside(self, command: Sequence[str]) -> list[str]:
        """A command line that sees the root's mounts below `prefix`, and is not in it."""
        return list(command) if self._is_own else ["nsenter", f"--target={self._holder}", "--mount", *command]

    @property
    def _mark(self) -> Path:
        return self._folder / "mounted"

    def _inside(self) -> list[str]:
        return ["nsenter", f"--target={self._holder}", "--mount", "chroot", str(self._root)]
