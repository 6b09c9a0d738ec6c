"""Facts about a machine: processors, memory, load, disk; and the keeper's own use of them."""

import os
import time
from typing import Any, Dict


def read_facts(directory: str) -> Dict[str, Any]:
    """Bytes, counts, load averages of 1, 5 and 15 minutes; the disk is the one of `directory`. Raises OSError."""
    disk = os.statvfs(directory)
    memory = _memory()
    return {
        "cpu_count": len(os.sched_getaffinity(0)),
        "memory_bytes": memory.get("MemTotal"),
        "memory_available_bytes": memory.get("MemAvailable"),
        "load": list(os.getloadavg()),
        "disk_bytes": disk.f_frsize * disk.f_blocks,
        "disk_free_bytes": disk.f_frsize * disk.f_bavail,
        "keeper_cpu_s": time.process_time(),
    }


def _memory() -> Dict[str, int]:
    with open("/proc/meminfo", encoding="ascii") as file:
        entries = (line.split() for line in file)
        return {entry[0].rstrip(":"): int(entry[1]) * 1024 for entry in entries if len(entry) == 3}
