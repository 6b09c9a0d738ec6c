"""Reads a machine's GPUs and the processes on them, in a separate process, as drivers may hang forever.

The keeper starts it (see `keeper.jobs.gpus`) and writes a line for each reading; the answer is a line of JSON, the
*reading* of the wire contract. It ends with its input. `Nvml` calls the driver's library through ctypes, as trials'
machines need no packages. If that fails, `cards_by_program` runs the driver's program `nvidia-smi`, and parses its XML
or, if that is invalid, its tables. Standard library only, Python 3.7 syntax.
"""

import ctypes
import json
import os
import shutil
import subprocess
import sys
from typing import Any, Dict, List, Optional
from xml.etree import ElementTree

#: Search paths; the second and the third are those of WSL and of containers.
_LIBRARIES = (
    "libnvidia-ml.so.1",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
    "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
)
_SUCCESS = 0
#: Not supported, or no permission: some boards and containers do not list processes.
_NOT_TOLD = (3, 4)
_INSUFFICIENT_SIZE = 7
_NOT_AVAILABLE = 2**64 - 1
Card = Dict[str, Any]
#: NVIDIA's multi-process service; the part of its name that the kernel stores.
_MPS_SERVER = b"nvidia-cuda-mps"
#: Initial room for processes of one card; if there are more, room for all of them and a reserve.
_PROCESSES = 64


class Absent(Exception):
    """The library or program does not exist."""


class Failed(Exception):
    """The library, its driver or nvidia-smi answers with an error, or with an invalid answer."""


def _card(index: int, uuid: str = "", name: str = "", total: Optional[int] = None, free: Optional[int] = None) -> Card:
    """A card with sizes in bytes; its processes are unknown yet.

    Memory reserved by the driver, hundreds of MiB, counts as used, as in NVML; nvidia-smi's own number excludes it.
    """
    return {
        "index": index,
        "uuid": uuid,
        "name": name,
        "error": "",
        "memory_bytes": total,
        "used_bytes": None if total is None or free is None else total - free,
        "processes": [],
    }


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Process(ctypes.Structure):
    """A process as returned by versioned calls."""

    _fields_ = [
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class _FirstProcess(ctypes.Structure):
    """A process as returned by calls without a version, the only ones in drivers before 2021."""

    _fields_ = [("pid", ctypes.c_uint), ("memory", ctypes.c_ulonglong)]


class Nvml:
    """NVML, NVIDIA's library, initialized. Its constructor and methods raise Absent and Failed."""

    def __init__(self) -> None:
        self._library = _load()
        self._call(("nvmlInit_v2", "nvmlInit"))

    def close(self) -> None:
        self._call(("nvmlShutdown",))

    def cards(self) -> List[Card]:
        """See the wire contract. Errors of one card are stored with that card."""
        count = ctypes.c_uint()
        self._call(("nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"), ctypes.byref(count))
        return [self._card(index) for index in range(count.value)]

    def _card(self, index: int) -> Dict[str, Any]:
        card = _card(index)
        try:
            self._describe(card)
        except Failed as error:
            card["error"] = str(error)
        return card

    def _describe(self, card: Card) -> None:
        device = ctypes.c_void_p()
        names = ("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex")
        self._call(names, ctypes.c_uint(card["index"]), ctypes.byref(device))
        card["uuid"] = self._text("nvmlDeviceGetUUID", device)
        card["name"] = self._text("nvmlDeviceGetName", device)
        memory = _Memory()
        self._call(("nvmlDeviceGetMemoryInfo",), device, ctypes.byref(memory))
        card["memory_bytes"], card["used_bytes"] = memory.total, memory.used
        compute = self._processes("nvmlDeviceGetComputeRunningProcesses", device)
        graphics = self._processes("nvmlDeviceGetGraphicsRunningProcesses", device)
        card["processes"] = [_process(pid, used, True) for pid, used in compute.items()]
        card["processes"] += [_process(pid, used, False) for pid, used in graphics.items() if pid not in compute]

    def _text(self, name: str, device: ctypes.c_void_p) -> str:
        text = ctypes.create_string_buffer(96)
        self._call((name,), device, text, ctypes.c_uint(len(text)))
        return text.value.decode("utf-8", "replace")

    def _processes(self, name: str, device: ctypes.c_void_p) -> Dict[int, Optional[int]]:
        """Process → bytes; None: unknown."""
        kinds = (("_v3", _Process), ("_v2", _Process), ("", _FirstProcess))
        suffix, kind = next((s, k) for s, k in kinds if not s or hasattr(self._library, name + s))
        size = _PROCESSES
        while True:
            found, count = (kind * size)(), ctypes.c_uint(size)
            code = getattr(self._library, name + suffix)(device, ctypes.byref(count), found)
            if code != _INSUFFICIENT_SIZE:
                break
            size = count.value + _PROCESSES
        if code in _NOT_TOLD:
            return {}
        self._check(name, code)
        return {p.pid: None if p.memory == _NOT_AVAILABLE else p.memory for p in found[: count.value]}

    def _call(self, names: Any, *arguments: Any) -> None:
        """The first of these functions that the library has."""
        name = next((name for name in names if hasattr(self._library, name)), None)
        if name is None:
            raise Failed("NVML has no {}".format(names[0]))
        self._check(name, getattr(self._library, name)(*arguments))

    def _check(self, name: str, code: int) -> None:
        if code == _SUCCESS:
            return
        sentence = "error {}".format(code)
        if hasattr(self._library, "nvmlErrorString"):
            self._library.nvmlErrorString.restype = ctypes.c_char_p
            sentence = (self._library.nvmlErrorString(code) or b"").decode("utf-8", "replace") or sentence
        raise Failed("NVML: {} ({})".format(sentence, name))


def _process(pid: int, used: Optional[int], is_compute: bool) -> Dict[str, Any]:
    return {"pid": pid, "memory_bytes": used, "is_compute": is_compute}


def _load() -> ctypes.CDLL:
    reasons = []
    for name in _LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            reasons.append(str(error))
    raise Absent(reasons[0])


#: Maximum seconds; without a persistent driver it wakes every card.
_MOST_S = 30.0
#: Search paths in addition to `$PATH`: of WSL, of containers, of the usual installation.
_FOLDERS = ("/usr/bin", "/usr/lib/wsl/lib", "/usr/local/nvidia/bin", "/usr/local/cuda/bin", "/opt/bin")
_MIB = 1024 * 1024


def cards_by_program() -> List[Card]:
    """See the wire contract. Raises Absent and Failed."""
    program = shutil.which("nvidia-smi") or shutil.which("nvidia-smi", path=os.pathsep.join(_FOLDERS))
    if program is None:
        raise Absent("nvidia-smi does not exist")
    try:
        root = ElementTree.fromstring(_run(program, "-q", "-x"))  # noqa: S314 - the driver's own words
        return [_described(index, element) for index, element in enumerate(root.iter("gpu"))]
    except (ElementTree.ParseError, _Refused):
        return _from_tables(program)


class _Refused(Failed):
    """nvidia-smi does not know these arguments, or fails with any arguments."""


def _run(program: str, *arguments: str) -> str:
    try:
        done = subprocess.run(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=_MOST_S,
        )
    except subprocess.TimeoutExpired:
        raise Failed("nvidia-smi did not answer within {:.0f} s".format(_MOST_S)) from None
    except OSError as error:
        raise Failed("nvidia-smi could not start: {}".format(error.strerror)) from None
    output = done.stdout.decode("utf-8", "replace")
    if done.returncode != 0:
        words = (done.stderr.decode("utf-8", "replace").strip() or output.strip()).splitlines()
        raise _Refused("nvidia-smi: {} (exit code {})".format(words[0] if words else "no output", done.returncode))
    return output


def _described(index: int, element: ElementTree.Element) -> Card:
    sizes = (_size(_text(element, "fb_memory_usage/" + name)) for name in ("total", "free"))
    card = _card(index, _text(element, "uuid"), _text(element, "product_name"), *sizes)
    card["processes"] = [
        _process(int(_text(found, "pid")), _size(_text(found, "used_memory")), "C" in (_text(found, "type") or "C"))
        for found in element.iter("process_info")
        if _text(found, "pid").isdigit()
    ]
    return card


def _text(element: ElementTree.Element, path: str) -> str:
    text = (element.findtext(path) or "").strip()
    return "" if text in ("N/A", "[N/A]") else text


def _size(text: str) -> Optional[int]:
    """The size in ``11264 MiB``, or without the unit."""
    number = text.split()[0] if text else ""
    return int(number) * _MIB if number.isdigit() else None


# Tables


def _from_tables(program: str) -> List[Card]:
    told = _table(program, "--query-gpu=index,uuid,name,memory.total,memory.free", 5)
    cards = [_card(int(index), uuid, name, _size(total), _size(free)) for index, uuid, name, total, free in told]
    by_uuid = {card["uuid"]: card for card in cards}
    for uuid, pid, used in _table(program, "--query-compute-apps=gpu_uuid,pid,used_memory", 3):
        if uuid in by_uuid and pid.isdigit():
            by_uuid[uuid]["processes"].append(_process(int(pid), _size(used), True))
    return cards


def _table(program: str, query: str, columns: int) -> List[List[str]]:
    rows = []
    for line in _run(program, query, "--format=csv,noheader,nounits").splitlines():
        row = [value.strip() for value in line.split(",")]
        if len(row) != columns or (query.startswith("--query-gpu") and not row[0].isdigit()):
            raise Failed("nvidia-smi: unexpected output {!r}".format(line[:200]))
        rows.append(row)
    return rows


Reading = Dict[str, Any]


class Probe:
    """Keeps the library open between readings: opening it takes seconds on some machines."""

    def __init__(self) -> None:
        self._nvml: Optional[Nvml] = None

    def read(self) -> Reading:
        try:
            return _reading("nvml", self._from_library())
        except (Absent, Failed) as error:
            why, is_absent = str(error), isinstance(error, Absent)
        try:
            return _reading("nvidia-smi", cards_by_program())
        except (Absent, Failed) as error:
            return _failure("{}; {}".format(why, error), is_absent=is_absent and isinstance(error, Absent))

    def _from_library(self) -> List[Card]:
        self._nvml = self._nvml or Nvml()
        try:
            return self._nvml.cards()
        except Failed:
            nvml, self._nvml = self._nvml, None  # the driver may have been replaced
            nvml.close()
            raise


def _reading(source: str, cards: List[Card]) -> Reading:
    for card in cards:
        for process in card["processes"]:
            process["user"] = _user_of(process["pid"])
            process["is_compute"] = process["is_compute"] and not _is_mps_server(process["pid"])
    return {"source": source, "cards": cards, "error": "", "is_absent": False}


def _failure(error: str, *, is_absent: bool) -> Reading:
    return {"source": "", "cards": [], "error": error, "is_absent": is_absent}


def _user_of(pid: int) -> str:
    """The user of a process; empty: unknown here, as containers have their own process ids."""
    import pwd

    try:
        uid = os.stat("/proc/{}".format(pid)).st_uid
    except OSError:
        return ""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _is_mps_server(pid: int) -> bool:
    """Whether it only forwards work of its clients, which are listed; it stays on the card without clients."""
    try:
        with open("/proc/{}/comm".format(pid), "rb") as name:
            return name.read().strip() == _MPS_SERVER
    except OSError:
        return False


def main() -> int:
    probe = Probe()
    for _ in iter(sys.stdin.readline, ""):
        try:
            reading = probe.read()
        except Exception as error:
            reading = _failure("the probe failed: {!r}".format(error), is_absent=False)
        sys.stdout.write(json.dumps(reading) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
