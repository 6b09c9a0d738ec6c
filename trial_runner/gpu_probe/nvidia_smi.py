"""The driver's program `nvidia-smi`: its XML, or, where that cannot be read, its tables."""

import os
import shutil
import subprocess
from typing import Any, Dict, List, Optional
from xml.etree import ElementTree

#: Seconds that it may take; without a persistent driver it wakes every card.
_MOST_S = 30.0
#: Where it is beside `$PATH`: of WSL, of containers, of the usual installation.
_FOLDERS = ("/usr/bin", "/usr/lib/wsl/lib", "/usr/local/nvidia/bin", "/usr/local/cuda/bin", "/opt/bin")
_MIB = 1024 * 1024


class SmiAbsent(Exception):
    """An error: there is no such program."""


class SmiFailed(Exception):
    """nvidia-smi failed, or its output cannot be read."""


def cards() -> List[Dict[str, Any]]:
    """See the wire contract. Raises SmiAbsent and SmiFailed."""
    program = shutil.which("nvidia-smi") or shutil.which("nvidia-smi", path=os.pathsep.join(_FOLDERS))
    if program is None:
        raise SmiAbsent("nvidia-smi is not there")
    try:
        root = ElementTree.fromstring(_run(program, "-q", "-x"))  # noqa: S314 - the driver's own words
        return [_card(index, element) for index, element in enumerate(root.iter("gpu"))]
    except (ElementTree.ParseError, _Refused):
        return _from_tables(program)


class _Refused(SmiFailed):
    """An error: it does not know these arguments, or fails whatever it is asked."""


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
        raise SmiFailed("nvidia-smi did not answer within {:.0f} s".format(_MOST_S)) from None
    except OSError as error:
        raise SmiFailed("nvidia-smi cannot be started: {}".format(error.strerror)) from None
    output = done.stdout.decode("utf-8", "replace")
    if done.returncode != 0:
        words = (done.stderr.decode("utf-8", "replace").strip() or output.strip()).splitlines()
        raise _Refused("nvidia-smi: {} (exit code {})".format(words[0] if words else "no word", done.returncode))
    return output


def _card(index: int, element: ElementTree.Element) -> Dict[str, Any]:
    return {
        "index": index,
        "uuid": _text(element, "uuid"),
        "name": _text(element, "product_name"),
        "error": "",
        "memory_bytes": _size(_text(element, "fb_memory_usage/total")),
        "used_bytes": _size(_text(element, "fb_memory_usage/used")),
        "processes": [_process(found) for found in element.iter("process_info") if _text(found, "pid").isdigit()],
    }


def _process(element: ElementTree.Element) -> Dict[str, Any]:
    kinds = _text(element, "type") or "C"
    return {
        "pid": int(_text(element, "pid")),
        "memory_bytes": _size(_text(element, "used_memory")),
        "is_compute": "C" in kinds,
    }


def _text(element: ElementTree.Element, path: str) -> str:
    text = (element.findtext(path) or "").strip()
    return "" if text in ("N/A", "[N/A]") else text


def _size(text: str) -> Optional[int]:
    """The size in ``11264 MiB``, or without the unit."""
    number = text.split()[0] if text else ""
    return int(number) * _MIB if number.isdigit() else None


# Tables


def _from_tables(program: str) -> List[Dict[str, Any]]:
    cards = []
    for index, uuid, name, total, used in _table(program, "--query-gpu=index,uuid,name,memory.total,memory.used", 5):
        card: Dict[str, Any] = {"index": int(index), "uuid": uuid, "name": name, "error": "", "processes": []}
        card.update(memory_bytes=_size(total), used_bytes=_size(used))
        cards.append(card)
    by_uuid = {card["uuid"]: card for card in cards}
    for uuid, pid, used in _table(program, "--query-compute-apps=gpu_uuid,pid,used_memory", 3):
        if uuid in by_uuid and pid.isdigit():
            process = {"pid": int(pid), "memory_bytes": _size(used), "is_compute": True}
            by_uuid[uuid]["processes"].append(process)
    return cards


def _table(program: str, query: str, columns: int) -> List[List[str]]:
    rows = []
    for line in _run(program, query, "--format=csv,noheader,nounits").splitlines():
        row = [value.strip() for value in line.split(",")]
        if len(row) != columns or (query.startswith("--query-gpu") and not row[0].isdigit()):
            raise SmiFailed("nvidia-smi: {!r} cannot be understood".format(line[:200]))
        rows.append(row)
    return rows
