"""The driver's library NVML through ctypes: no package is needed where trials run."""

import ctypes
from typing import Any, Dict, List, Optional

#: Where it is looked for; the second and the third are those of WSL and of containers.
_LIBRARIES = (
    "libnvidia-ml.so.1",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
    "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
)
_SUCCESS = 0
#: Not supported, and no permission: some boards, and some containers, do not list processes.
_NOT_TOLD = (3, 4)
_INSUFFICIENT_SIZE = 7
_NOT_AVAILABLE = 2**64 - 1
#: Processes of one card that are asked for at first; when there are more, for as many as there are, and some.
_PROCESSES = 64


class NvmlAbsent(Exception):
    """An error: there is no such library."""


class NvmlFailed(Exception):
    """The library, or the driver behind it, answers with an error."""


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Process(ctypes.Structure):
    """A process as the calls with a version tell it."""

    _fields_ = [
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class _FirstProcess(ctypes.Structure):
    """A process as the calls without a version tell it, which are all that drivers before 2021 have."""

    _fields_ = [("pid", ctypes.c_uint), ("memory", ctypes.c_ulonglong)]


class Nvml:
    """NVML, NVIDIA's library, initialised. Raises NvmlAbsent and NvmlFailed, as its methods do."""

    def __init__(self) -> None:
        self._library = _load()
        self._call(("nvmlInit_v2", "nvmlInit"))

    def close(self) -> None:
        self._call(("nvmlShutdown",))

    def cards(self) -> List[Dict[str, Any]]:
        """See the wire contract. What is wrong with one card is said of that card."""
        count = ctypes.c_uint()
        self._call(("nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"), ctypes.byref(count))
        return [self._card(index) for index in range(count.value)]

    def _card(self, index: int) -> Dict[str, Any]:
        card: Dict[str, Any] = {"index": index, "uuid": "", "name": "", "error": "", "processes": []}
        card.update(memory_bytes=None, used_bytes=None)
        try:
            self._describe(card)
        except NvmlFailed as error:
            card["error"] = str(error)
        return card

    def _describe(self, card: Dict[str, Any]) -> None:
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
        card["processes"] = [_process(pid, used, is_compute=True) for pid, used in compute.items()]
        card["processes"] += [
            _process(pid, used, is_compute=False) for pid, used in graphics.items() if pid not in compute
        ]

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
            raise NvmlFailed("NVML has no {}".format(names[0]))
        self._check(name, getattr(self._library, name)(*arguments))

    def _check(self, name: str, code: int) -> None:
        if code == _SUCCESS:
            return
        sentence = "error {}".format(code)
        if hasattr(self._library, "nvmlErrorString"):
            self._library.nvmlErrorString.restype = ctypes.c_char_p
            sentence = (self._library.nvmlErrorString(code) or b"").decode("utf-8", "replace") or sentence
        raise NvmlFailed("NVML: {} ({})".format(sentence, name))


def _process(pid: int, used: Optional[int], *, is_compute: bool) -> Dict[str, Any]:
    return {"pid": pid, "memory_bytes": used, "is_compute": is_compute}


def _load() -> ctypes.CDLL:
    reasons = []
    for name in _LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            reasons.append(str(error))
    raise NvmlAbsent(reasons[0])
