"""What the server is asked for, and which commands it can be asked for."""

from __future__ import annotations

import array
import json
import os
import resource
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from nni_manager.platform_kit.payload import STAND_IN

#: Our commands in addition to the interpreter, and fakes that run as separate processes.
_SCRIPTS = ("nnictl", "nni-manager")
FAKES = tuple(f"tests.fakes.{name}" for name in ("dlts", "kubernetes", "openpai"))
TUNER = "nni_manager.scheduler.tuning.process"
_MODULES = [["-m", name] for name in ("nni_manager", "trial_runner.keeper", TUNER, *FAKES)]
#: Variables that an interpreter, its libraries or the loader read while they start: of these a fork has the server's.
_READ_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "GLIBC_", "MALLOC_", "OPENSSL_", "SSL_")
#: But this one, which a fork obeys.
_OBEYED = "PYTHONFAULTHANDLER"
#: And of this one what the product adds, the stand-in at its end.
_PATH = "PYTHONPATH"
_LIMITS = sorted(number for name, number in vars(resource).items() if name.startswith("RLIMIT_"))
_MOST_BYTES = 1 << 20
_MOST_DESCRIPTORS = 64


@dataclass(frozen=True)
class Order:
    """`command`: with the interpreter, as the kernel shows it. `program`: what of it runs: a script, a module, code.

    `descriptors`: the numbers that those have in the fork which are sent along. `limits`: soft and hard ones.
    """

    command: list[str]
    program: list[str]
    directory: str
    environment: dict[str, str]
    descriptors: list[int]
    limits: list[list[int]]
    umask: int
    session: bool
    group: int
    interrupts: bool

    @property
    def arguments(self) -> list[str]:
        return self.command[self.command.index(self.program[-1]) + 1 :]


def command_of(words: str | bytes | Sequence[object]) -> tuple[list[str], list[str]] | None:
    """Command line and program of a start of ours; None: it is another's."""
    if isinstance(words, str | bytes):
        return None
    command = [os.fsdecode(word) if isinstance(word, bytes | os.PathLike) else str(word) for word in words]
    if command[0] == sys.executable:
        for program in ([*options, *module] for options in (["-P"], []) for module in _MODULES):
            if command[1 : len(program) + 1] == program:
                return command, program
    script = Path(command[0])
    if script.name in _SCRIPTS and script.parent == Path(sys.executable).parent:
        return [sys.executable, *command], [command[0]]
    return None


def is_like(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether an interpreter starts in the same way in both environments, but for the stand-in on the path of `one`."""
    return _read_at_start(_without_stand_in(one)) == _read_at_start(other)


def has_stand_in(environment: Mapping[str, str]) -> bool:
    """Whether it ends the path that the environment tells an interpreter."""
    return environment.get(_PATH, "").split(":")[-1] == STAND_IN


def path_with_stand_in(path: Sequence[str]) -> list[str]:
    """The module search path, with the stand-in where an interpreter puts what its environment tells."""
    library = next(number for number, folder in enumerate(path) if folder.endswith(".zip"))
    return list(dict.fromkeys([*path[:library], STAND_IN, *path[library:]]))


def _without_stand_in(environment: Mapping[str, str]) -> Mapping[str, str]:
    if not has_stand_in(environment):
        return environment
    rest = environment[_PATH].removesuffix(STAND_IN).removesuffix(":")
    others = {key: value for key, value in environment.items() if key != _PATH}
    return {**others, _PATH: rest} if rest else others


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in environment.items() if key.startswith(_READ_AT_START) and key != _OBEYED}


def own_umask() -> int:
    """Without a change of it, which other threads would see."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("Umask:"))
    return int(line.split()[1], 8)


def own_limits() -> list[list[int]]:
    return [list(resource.getrlimit(number)) for number in _LIMITS]


def set_limits(limits: Sequence[Sequence[int]]) -> None:
    for number, (soft, hard) in zip(_LIMITS, limits, strict=True):
        if (soft, hard) != resource.getrlimit(number):
            resource.setrlimit(number, (soft, hard))


def send(server: socket.socket, order: Order, descriptors: Sequence[int]) -> None:
    text = json.dumps(asdict(order)).encode()
    server.sendmsg([text], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))])


def receive(client: socket.socket) -> tuple[Order, list[int]]:
    """And the descriptors that came with it, as numbers of this process. Raises ValueError where it ended instead."""
    descriptors = array.array("i")
    text, ancillary, _, _ = client.recvmsg(_MOST_BYTES, socket.CMSG_SPACE(_MOST_DESCRIPTORS * descriptors.itemsize))
    for _, _, data in ancillary:
        descriptors.frombytes(data)
    return Order(**json.loads(text)), list(descriptors)
