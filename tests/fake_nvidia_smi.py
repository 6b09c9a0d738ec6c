"""`nvidia-smi` of `fake_driver`. Its first arguments are the file, and 1 if it writes only tables, else 0.

Memory that the driver keeps is reserved: neither used nor free.
"""

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Card:
    uuid: str
    name: str
    total: int
    reserved: int
    #: Process, kind, MiB.
    processes: list[tuple[str, str, int]] = field(default_factory=list)

    @property
    def used(self) -> int:
        return sum(mib for _, _, mib in self.processes)

    @property
    def free(self) -> int:
        return self.total - self.reserved - self.used


def main(state: str, is_old: str, *arguments: str) -> int:
    lines = [line.split(" ", 1) for line in Path(state).read_text().splitlines()]
    for line in lines:
        if line[0] == "hang":
            time.sleep(600)
        if line[0] == "fail":
            print(line[1])
            return 9
    cards = cards_of(lines)
    if arguments == ("-q", "-x") and is_old == "0":
        print(xml(cards))
    elif arguments and arguments[0].startswith("--query-"):
        print(table(cards, *arguments))
    else:
        print(f"Invalid combination of input arguments: {arguments}", file=sys.stderr)
        return 2
    return 0


def cards_of(lines: list[list[str]]) -> list[Card]:
    cards: list[Card] = []
    for kind, rest in lines:
        if kind == "card":
            uuid, name, total, reserved = rest.split(" ")
            cards.append(Card(uuid, name, int(total), int(reserved)))
        else:
            pid, type_, mib = rest.split(" ")
            cards[-1].processes.append((pid, type_, int(mib)))
    return cards


def xml(cards: list[Card]) -> str:
    count = f"<attached_gpus>{len(cards)}</attached_gpus>"
    return f'<?xml version="1.0" ?>\n<nvidia_smi_log>{count}{"".join(map(card_in_xml, cards))}</nvidia_smi_log>'


def card_in_xml(card: Card) -> str:
    sizes = {"total": card.total, "reserved": card.reserved, "used": card.used, "free": card.free}
    memory = "".join(f"<{name}>{mib} MiB</{name}>" for name, mib in sizes.items())
    processes = "".join(
        f"<process_info><pid>{pid}</pid><type>{kind}</type><process_name>x</process_name>"
        f"<used_memory>{mib} MiB</used_memory></process_info>"
        for pid, kind, mib in card.processes
    )
    return (
        f"<gpu><product_name>{card.name}</product_name><uuid>{card.uuid}</uuid>"
        f"<fb_memory_usage>{memory}</fb_memory_usage><processes>{processes}</processes></gpu>"
    )


def table(cards: list[Card], query: str, form: str) -> str:
    assert form == "--format=csv,noheader,nounits"
    if query.startswith("--query-compute-apps="):
        known = [{"gpu_uuid": c.uuid, "pid": p, "used_memory": m} for c in cards for p, k, m in c.processes if "C" in k]
    else:
        known = [
            {"index": n, "uuid": c.uuid, "name": c.name, "memory.total": c.total, "memory.used": c.used}
            | {"memory.free": c.free}
            for n, c in enumerate(cards)
        ]
    names = query.partition("=")[2].split(",")
    return "\n".join(", ".join(str(row[name]) for name in names) for row in known)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
