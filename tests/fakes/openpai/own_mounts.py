"""Mounts by containers themselves: NFS exports and Azure blob containers of a simulated network.

Each is a local folder. A container with the programs and the right binds it to a mount point in its mount namespace.
The mount is visible only there, and ends with the container.

Sources, at microsoft/pai a95d9420e, the same at v1.8.0:

- `src/rest-server/src/models/v2/job/k8s.js`, `generateTaskRole`: the container `app` gets SYS_ADMIN, IPC_LOCK and
  DAC_READ_SEARCH, loses MKNOD, and is not privileged; AppArmor is off; it has the image's user, the node's network, and
  one `github.com/fuse`, which is `/dev/fuse` by `src/device-plugin/deploy/device-plugin.yaml`. No job can change that.
- `examples/mnist_500_tasks/yaml/CPU_500Task_MNIST.yaml`: a job installs `nfs-common`, then `mount -t nfs4`.
- microsoft/openpai-runtime 59ec6d1, `src/plugins/teamwise_storage/init.py`: the plug-in no longer mounts;
  the server converts it to `extras.storages`.
- nfs-utils (stefanha/nfs-utils, `utils/mount`: `mount.c` at 00511ee5, `error.c` at 12544486, `stropts.c`), and
  Azure/azure-storage-fuse 0074bc92, `cmd/mount.go`: messages of their programs.

The guesses are listed in `__init__.py`. Difference from a cluster: a mount is a bind, so its line of `mountinfo`
contains neither `nfs` or `fuse` nor the server's name.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.fakes import own_root
from tests.fakes.openpai import packages
from tests.fakes.own_root import Step

#: Default capabilities of a container engine, with the server's additions and removals.
_CAPABILITIES = (
    *("chown", "dac_override", "fsetid", "fowner", "net_raw", "setgid", "setuid", "setfcap", "setpcap"),
    *("net_bind_service", "sys_chroot", "kill", "audit_write", "ipc_lock", "dac_read_search"),
)
_INSIDE = "/run/cluster"
_SBIN = os.path.realpath("/usr/sbin")
#: Programs of each package.
_PROGRAMS = {"nfs-common": ("mount.nfs", "mount.nfs4"), "blobfuse2": ("blobfuse2",)}
_OUR_PROGRAM = Path(__file__).with_name("mount_programs.py")
#: Kernels of nodes support NFS: without the helper they refuse the options. This machine's kernel may lack NFS.
_MOUNT = f"""\
#!/bin/sh
kind= before= last=
for word; do
    case $before in -t | --types) kind=$word ;; -o | --options) word= ;; esac
    case $word in
    -t?*) kind=${{word#-t}} ;;
    --types=*) kind=${{word#*=}} ;;
    *:/*) kind=${{kind:-nfs}} ;;
    esac
    before=$word last=$word
done
case $kind in nfs | nfs4)
    if [ ! -x "/sbin/mount.$kind" ]; then
        why='bad option; for several filesystems (e.g. nfs, cifs) you might need a /sbin/mount.<type> helper program.'
        echo "mount: $last: $why" >&2
        exit 32
    fi
    ;;
esac
exec {_INSIDE}/mount "$@"
"""


@dataclass(slots=True)
class Network:
    """`exports`: "SERVER:/PATH" → folder. `blobs`: "ACCOUNT/CONTAINER" → `folder`, `key`.

    `told`: folder with the current fault, visible in containers.
    """

    told: Path
    exports: dict[str, str] = field(default_factory=dict)
    blobs: dict[str, dict[str, str]] = field(default_factory=dict)

    def tell(self, fault: str) -> None:
        """Set the fault ("", "hang" or "denied") of future and hanging mounts."""
        self.told.mkdir(parents=True, exist_ok=True)
        again = self.told / "again"
        if fault == "hang" and not again.is_fifo():
            again.unlink(missing_ok=True)
            os.mkfifo(again)
        self._write("fault", fault)
        if fault != "hang":  # waiting mounts get a writer; later ones find a file
            waited_for = os.open(again, os.O_RDWR) if again.is_fifo() else None
            self._write("again", "")
            if waited_for is not None:
                os.close(waited_for)

    def _write(self, name: str, text: str) -> None:
        (self.told / f"{name}.new").write_text(text)
        (self.told / f"{name}.new").replace(self.told / name)


@dataclass(frozen=True, slots=True)
class Image:
    """`packages`: which of `nfs-common` and `blobfuse2` it has. `may_mount`: the cluster grants SYS_ADMIN.

    `may_install`: `apt-get` reaches its servers.
    """

    packages: tuple[str, ...] = ("nfs-common", "blobfuse2")
    may_mount: bool = True
    may_install: bool = True

    @property
    def capabilities(self) -> tuple[str, ...]:
        return (*_CAPABILITIES, *(("sys_admin",) if self.may_mount else ()))


def files(image: Image, network: Network) -> dict[str, str]:
    """Path inside → text."""
    offered = dict.fromkeys(_PROGRAMS["nfs-common"], _program()) if image.may_install else {}
    exports = {name: f"{_INSIDE}/exports/{number}" for number, name in enumerate(network.exports)}
    blobs = {
        name: {"folder": f"{_INSIDE}/blobs/{number}", "key": network.blobs[name]["key"]}
        for number, name in enumerate(network.blobs)
    }
    return {
        f"{_INSIDE}/network.json": json.dumps({"exports": exports, "blobs": blobs}),
        _real_mount(): _MOUNT,
        **packages.files(offered),
    }


def steps(folder: Path, shared: Path, image: Image, network: Network) -> Iterator[Step]:
    """Steps of a root before `files`.

    `folder`: for the container's own `/sbin`; `shared`: for the read-only `/sbin` of images without installation.
    """
    yield "read", _real_mount(), f"{_INSIDE}/mount"
    yield "read", _SBIN, f"{_INSIDE}/sbin"
    if image.packages == Image().packages:
        yield "read", str(_made_once(shared, image)), _SBIN
    else:
        yield "bind", str(_sbin(folder, image)), _SBIN
    yield "read", str(network.told), f"{_INSIDE}/told"
    if os.path.exists("/dev/fuse"):
        yield "device", "/dev/fuse", "/dev/fuse"
    for number, export in enumerate(network.exports.values()):
        yield "bind", export, f"{_INSIDE}/exports/{number}"
    for number, blob in enumerate(network.blobs.values()):
        yield "bind", blob["folder"], f"{_INSIDE}/blobs/{number}"


def _real_mount() -> str:
    return shutil.which("mount", path=own_root.PROGRAMS) or "/bin/mount"


def _made_once(folder: Path, image: Image) -> Path:
    """Shared folder of links: creating hundreds of links takes most of the time of a container start."""
    if not folder.exists():
        _sbin(folder.with_name(f"{folder.name}.new"), image).replace(folder)
    return folder


def _sbin(folder: Path, image: Image) -> Path:
    """Links to the machine's programs, except those of the optional packages."""
    folder.mkdir(parents=True, exist_ok=True)
    ours: set[str] = {program for programs in _PROGRAMS.values() for program in programs}
    for one in Path(_SBIN).iterdir():
        if one.name not in ours:
            _link(folder / one.name, os.readlink(one) if one.is_symlink() else f"{_INSIDE}/sbin/{one.name}")
    if not (folder / "apt-get").is_symlink():
        (folder / "apt-get").touch()  # a file to cover, if the machine has no apt-get
    for package in image.packages:
        for program in _PROGRAMS[package]:
            (folder / program).write_text(_program())
            (folder / program).chmod(0o755)
    return folder


def _program() -> str:
    return f"#!{os.path.realpath(sys.executable)} -I\n{_OUR_PROGRAM.read_text()}"


def _link(path: Path, target: str) -> None:
    with suppress(FileExistsError):
        path.symlink_to(target)
