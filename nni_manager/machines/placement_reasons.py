"""The reasons why a machine has no place for a job: sentences for people, and the same for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nni_manager.machines.gpu_sample import in_words
from nni_manager.machines.ledger import ANY_NUMBER, Demand, MachineLedger, User

#: Places of a machine that a sentence goes into; the details have all.
_MOST_SAID = 4


def sentence(machine: MachineLedger, demand: Demand) -> str:
    """The reason why the machine does not fit now; empty: it does."""
    if not machine.is_read:
        return f"which jobs run on {machine.called} is not known yet"
    if demand.count == 0:
        return ""
    if (unread := _unread(machine)) or (never := never_fits(machine, demand)):
        return unread or never
    if len(fitting := machine.fitting(demand)) >= demand.count:
        return ""
    reasons = [why for place in machine.allowed(demand) if (why := _of_place(machine, place, demand))]
    said = "; ".join(reasons[:_MOST_SAID]) + (f"; and {len(reasons) - _MOST_SAID} more" if reasons[_MOST_SAID:] else "")
    few = f"{len(fitting)} of the {demand.count} that a trial needs are free: " if demand.count > 1 else ""
    return f"{few}{said}"


def never_fits(machine: MachineLedger, demand: Demand) -> str:
    """The reason why no job fits on a machine even when all others have ended; empty: none is known."""
    if machine.reading is None or machine.reading.error or not machine.has_gpus:
        return ""
    if not machine.cards:
        return f"{machine.called} has no GPU"
    allowed = machine.allowed(demand)
    if len(allowed) < demand.count:
        chosen = "" if demand.only is None else f", {len(allowed)} of them in gpuIndices"
        return f"{machine.called} has {_gpus(len(machine.cards))}{chosen}, and a trial needs {demand.count}"
    sizes = [machine.cards[place].memory_bytes or 0 for place in allowed]
    if sum(size >= demand.memory_bytes for size in sizes) < demand.count:
        most = in_words(max(sizes))
        return f"the GPUs of {machine.called} have at most {most}, and a trial needs {in_words(demand.memory_bytes)}"
    return ""


def details(machine: MachineLedger, demand: Demand) -> dict[str, Any]:
    """The jobs and processes on each place of a machine, for programs."""
    users = machine.users()
    return {str(place): _place_details(machine, place, users.get(place, ())) for place in machine.allowed(demand)}


def _unread(machine: MachineLedger) -> str:
    if not machine.has_gpus or (machine.reading is not None and not machine.reading.error):
        return ""
    if machine.reading is None:
        return f"the GPUs of {machine.called} have not been read yet"
    return f"the GPUs of {machine.called} cannot be read: {machine.reading.error}"


def _of_place(machine: MachineLedger, place: int, demand: Demand) -> str:
    """The reason why a place cannot be had; empty: it can."""
    users = machine.users().get(place, [])
    if machine.fits(place, demand, users):
        return ""
    name, card = place_name(machine, place), machine.cards.get(place)
    if card is not None and card.error:
        return f"{name} is out of order: {card.error}"
    if card is not None and not demand.use_active and machine.foreign_on(card, users):
        return f"{name} busy: {', '.join(map(str, card.foreign))}"
    limit = min([demand.share, *(user.share for user in users)])
    if len(users) >= limit:
        has = "has" if limit == 1 else f"has {len(users)} of at most {limit} trials:"
        return f"{name} {has} {', '.join(user.job for user in users)}"
    free = in_words(max(0, machine.free_bytes(place, users)))
    return f"{name} has {free} free of the {in_words(demand.memory_bytes)} that a trial needs"


def place_name(machine: MachineLedger, place: int) -> str:
    """A place in words, as ``gpu 0 on hostA``."""
    return f"{'gpu' if machine.has_gpus else 'place'} {place} on {machine.called}"


def _place_details(machine: MachineLedger, place: int, users: Sequence[User]) -> Mapping[str, object]:
    card = machine.cards.get(place)
    found: dict[str, object] = {"jobs": [user.job for user in users]}
    if card is not None:
        found["processes"] = [
            {"pid": process.pid, "user": process.user, "memoryBytes": process.memory_bytes} for process in card.foreign
        ]
        if card.error:
            found["error"] = card.error
    if limits := [user.share for user in users if user.share < ANY_NUMBER]:
        found["limit"] = min(limits)
    return found


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"
