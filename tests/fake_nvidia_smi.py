"""`nvidia-smi` of `fake_driver`: its first argument is the file, the others are the user's."""

import sys
import time
from pathlib import Path


def main(state: str, *arguments: str) -> int:
    lines = [line.split(" ", 1) for line in Path(state).read_text().splitlines()]
    for line in lines:
        if line[0] == "hang":
            time.sleep(600)
        if line[0] == "fail":
            print(line[1])
            return 9
    if arguments == ("-q", "-x"):
        print(xml(lines))
        return 0
    print(f"Invalid combination of input arguments: {arguments}", file=sys.stderr)
    return 2


def xml(lines: list[list[str]]) -> str:
    cards: list[str] = []
    for kind, rest in lines:
        values = rest.split(" ")
        if kind == "card":
            cards.append(card(*values, used="0", processes=""))
        else:
            cards[-1] = cards[-1].replace("</processes>", process(*values) + "</processes>")
            cards[-1] = used(cards[-1], int(values[2]))
    count = f"<attached_gpus>{len(cards)}</attached_gpus>"
    return f'<?xml version="1.0" ?>\n<nvidia_smi_log>{count}{"".join(cards)}</nvidia_smi_log>'


def card(uuid: str, name: str, total: str, used: str, processes: str) -> str:
    memory = f"<total>{total} MiB</total><used>{used} MiB</used>"
    return (
        f"<gpu><product_name>{name}</product_name><uuid>{uuid}</uuid><fb_memory_usage>{memory}</fb_memory_usage>"
        f"<processes>{processes}</processes></gpu>"
    )


def process(pid: str, kind: str, mib: str) -> str:
    return (
        f"<process_info><pid>{pid}</pid><type>{kind}</type><process_name>x</process_name>"
        f"<used_memory>{mib} MiB</used_memory></process_info>"
    )


def used(text: str, mib: int) -> str:
    before, _, rest = text.partition("<used>")
    number, _, after = rest.partition(" MiB")
    return f"{before}<used>{int(number) + mib} MiB{after}"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
