"""Simulated images; tests can make the pull of an image fail."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.fakes.kubernetes.defaults import ACCOUNT_PATH
from tests.fakes.kubernetes.kinds import SECRETS
from tests.fakes.kubernetes.kubelet import roots
from tests.fakes.kubernetes.store import Object
from tests.fakes.kubernetes.verbs import Verbs
from tests.fakes.own_root import Step

_BARRIER = Path(__file__).with_name("barrier.py")
_BARRIER_INSIDE = "/opt/frameworkbarrier.py"
#: Prefix of the fake's own images.
OWN: tuple[Step, ...] = (("read", str(_BARRIER), _BARRIER_INSIDE),)


def entry_point(image: str) -> list[str]:
    """The default command of an image, for a few known images."""
    if image.partition(":")[0] != "frameworkcontroller/frameworkbarrier":
        return []
    script = _BARRIER_INSIDE if roots.works() else str(_BARRIER)
    return [os.path.realpath(sys.executable), script, "/mnt/frameworkbarrier", ACCOUNT_PATH]


class NotPulled(Exception):
    """A failed pull, with a container runtime's message."""


@dataclass
class Images:
    """Images that cannot be pulled, or need a secret."""

    verbs: Verbs
    #: Regular expression of image names → the error.
    broken: dict[str, str] = field(default_factory=dict)
    #: Registry host → user and password that a pull secret must have.
    private: dict[str, tuple[str, str]] = field(default_factory=dict)
    #: Duration of a pull in seconds.
    slow: float = 0.0

    def present(self, container: Object) -> bool:
        return not (self.broken or self.private or self.slow)

    async def pull(self, pod: Object, image: str) -> None:
        await asyncio.sleep(self.slow)
        for pattern, error in self.broken.items():
            if re.search(pattern, image):
                raise NotPulled(error)
        for registry, (user, password) in self.private.items():
            if image.startswith(f"{registry}/") and not self._has(pod, registry, user, password):
                told = f"failed to resolve reference {image!r}: failed to authorize: failed to fetch anonymous token"
                raise NotPulled(f"{told}: unexpected status: 401 Unauthorized")

    def _has(self, pod: Object, registry: str, user: str, password: str) -> bool:
        wanted = base64.b64encode(f"{user}:{password}".encode()).decode()
        for reference in pod["spec"].get("imagePullSecrets") or []:
            secret = self.verbs.find(SECRETS, pod["metadata"]["namespace"], reference["name"])
            held = (secret or {}).get("data", {}).get(".dockerconfigjson")
            for host, entry in json.loads(base64.b64decode(held)).get("auths", {}).items() if held else ():
                given = (
                    entry.get("auth")
                    or base64.b64encode(f"{entry.get('username')}:{entry.get('password')}".encode()).decode()
                )
                if host.removeprefix("https://").partition("/")[0] == registry and given == wanted:
                    return True
        return False
