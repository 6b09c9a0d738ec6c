"""A trial that holds memory on every card that CUDA shows, and notes these cards.

``hold_card.py JOURNAL SECONDS MIB``. Standard library only: the driver's library is called through ctypes. It appends a
line to the journal when it holds the memory, and another just before it frees it, with the machine's monotonic clock,
which all processes share.
"""

import ctypes
import json
import os
import signal
import sys
import time
import uuid

_NO_DEVICE = 100
_MIB = 2**20


class Uuid(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 16)]


def main(journal, seconds, mib):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    cuda = ctypes.CDLL("libcuda.so.1")
    cards = [hold(cuda, index, mib) for index in range(device_count(cuda))]
    note(journal, "holds", cards)
    try:
        time.sleep(seconds)
    finally:
        note(journal, "leaves", cards)
    if "NNI_OUTBOX" in os.environ:
        with open(os.environ["NNI_OUTBOX"], "a") as outbox:
            outbox.write(json.dumps({"type": "final", "value": len(cards)}) + "\n")


def device_count(cuda):
    code, count = cuda.cuInit(0), ctypes.c_int()
    if code == _NO_DEVICE:
        return 0
    check("cuInit", code)
    check("cuDeviceGetCount", cuda.cuDeviceGetCount(ctypes.byref(count)))
    return count.value


def hold(cuda, index, mib):
    """Hold memory on a card until the end; returns its name, or that of its MIG instance, from the device."""
    device, context, memory, name = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64(), Uuid()
    check("cuDeviceGet", cuda.cuDeviceGet(ctypes.byref(device), index))
    check("cuDeviceGetUuid", cuda.cuDeviceGetUuid_v2(ctypes.byref(name), device))
    check("cuDevicePrimaryCtxRetain", cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check("cuCtxSetCurrent", cuda.cuCtxSetCurrent(context))
    check("cuMemAlloc", cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(mib * _MIB)))
    return str(uuid.UUID(bytes=bytes(name.bytes)))


def check(call, code):
    if code:
        raise SystemExit(f"{call} failed with {code}")


def note(journal, event, cards):
    entry = {"event": event, "at_s": time.monotonic(), "cards": cards, "pid": os.getpid()}
    entry["trial"] = os.environ.get("NNI_TRIAL_JOB_ID", "")
    entry["visible"] = os.environ.get("CUDA_VISIBLE_DEVICES")
    descriptor = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, (json.dumps(entry) + "\n").encode())
    os.close(descriptor)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
