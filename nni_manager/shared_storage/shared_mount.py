"""Shared storage as machines mount it: settings and answers of `trial_runner/shared_storage.py`, here or elsewhere.

The storage account's key is in the text of that program, which is sent on standard input, or in a variable of a job's
container. It is never an argument, and not part of the answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nni_manager.domain.environment import without_settings
from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.domain.experiment import Json
from nni_manager.platform_kit import child_process
from nni_manager.platform_kit.contract import PreflightFinding, Severity
from trial_runner import protocol

LOCAL_FIELD, REMOTE_FIELD = "sharedStorage.localMountPoint", "sharedStorage.remoteMountPoint"
#: Seconds for a machine's answer; mounting may take most of it.
ANSWER_S = 45.0
#: Variable of a job's container with the storage account's key.
KEY_VARIABLE = "NNI_STORAGE_KEY"
#: State → advice for jobs, where users can neither type a command nor install a program.
_FIXES = {"denied": "use an image with root as its user", "other": "check what is mounted there, or use another folder"}
_PACKAGES = {"NFS": "nfs-common (nfs-utils)", "AzureBlob": "blobfuse2"}
_PROGRAM = Path(protocol.__file__).parent / "shared_storage.py"
_READ = "import sys; exec(sys.stdin.read())"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A file below the mount point that proves to both sides that they have mounted the same storage."""

    file: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MountAnswer:
    """The finding of the program that checks a mount."""

    state: str
    #: The mount point, absolute.
    point: str
    sentence: str = ""
    fix: str = ""

    @property
    def is_ready(self) -> bool:
        return self.state == "ready"

    def finding(self, subject: str) -> PreflightFinding:
        if self.is_ready or self.state == "mountable":
            sentence = f"{self.point} {'is there' if self.is_ready else 'is mounted for the first trial'}"
            return PreflightFinding(severity=Severity.FINE, subject=subject, sentence=sentence)
        return PreflightFinding(severity=Severity.WRONG, subject=subject, sentence=self.sentence, fix=self.fix)

    def require(self, field: str) -> None:
        """Raises PlatformUnavailable unless the storage is ready."""
        if not self.is_ready:
            fix = f"; {self.fix}" if self.fix else ""
            raise PlatformUnavailable(f"{field}: {self.sentence}{fix}", refused=True)


def program(
    action: str,
    storage: Json,
    point: str,
    *,
    user: str = "",
    may_mount: bool = True,
    mark: Mark | None = None,
    otherwise: str = "",
) -> str:
    """The program as text that a Python of 3.7 or newer runs. `user`: the user of the mount.

    `otherwise`: it runs in a job, whose trial reports the problem, with this as the last advice; without the key.
    """
    settings: dict[str, Any] = {
        "action": action,
        "point": point,
        "user": user,
        "may_mount": may_mount,
        "kind": storage["storageType"],
        "mark": None if mark is None else {"file": mark.file, "text": mark.text},
        "here": str(storage["localMountPoint"]),
        **_address(storage),
    }
    if otherwise:
        settings.pop("key", None)
        fixes = {**_FIXES, "absent": f"use an image that has {_PACKAGES[str(storage['storageType'])]}"}
        settings["in_job"] = {"key_variable": KEY_VARIABLE, "fixes": fixes, "otherwise": otherwise}
    return f"SETTINGS = {settings!r}\n{_PROGRAM.read_text(encoding='utf-8')}"


def _address(storage: Json) -> dict[str, Any]:
    if storage["storageType"] == "NFS":
        return {"source": f"{storage['nfsServer']}:{storage['exportedDirectory']}"}
    return {
        "account": storage["storageAccountName"],
        "key": storage["storageAccountKey"],
        "container": storage["containerName"],
    }


def answer_of(line: bytes) -> MountAnswer:
    """The program's answer. Raises ValueError if the line is not valid."""
    try:
        return MountAnswer(**json.loads(line))
    except TypeError as error:
        raise ValueError("its answer is invalid") from error


async def ask_here(text: str) -> MountAnswer:
    """The answer of this machine, from a separate process: an unreachable server blocks processes on its mount.

    Raises PlatformUnavailable.
    """
    process = await child_process.start(
        sys.executable,
        "-I",
        "-c",
        _READ,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=without_settings(os.environ),  # the mount program continues to run, and may need a proxy's address
    )
    try:
        async with asyncio.timeout(ANSWER_S):
            said, _ = await process.communicate(text.encode())
        return answer_of(said)
    except TimeoutError:
        raise PlatformUnavailable(
            f"{LOCAL_FIELD}: no answer within {ANSWER_S:.0f} s; check the storage's server",
            refused=True,
        ) from None
    except ValueError as error:
        raise PlatformUnavailable(f"{LOCAL_FIELD}: the check failed ({error})", refused=True) from error
    finally:
        if process.returncode is None:
            process.kill()
