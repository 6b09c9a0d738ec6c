"""The outboxes of an attempt that there are now. The same in keeper, runner and manager."""

from typing import Iterable, List, NamedTuple

from trial_runner import protocol
from trial_runner.wire import foreign_files
from trial_runner.wire.foreign_files import Folder
from trial_runner.wire.outbox_name import file_name, spelled


class Present(NamedTuple):
    """The outboxes found in an attempt's folder."""

    #: Names of outboxes, as `outbox_name` spells them. Links, pipes and names that begin with a dot are none.
    names: List[str]
    #: Folders that hold outboxes, deeper ones after their parents.
    folders: List[str]
    #: False: there are more files, or deeper ones, than are looked at, or than could be listed.
    is_complete: bool


def present(folder: Folder, known: Iterable[str]) -> Present:
    """The outboxes below `outbox/`, and NNI's metrics file.

    A listing that is cut short goes by the order of the folder, which is none, and one of storage of others may be
    old: outboxes that are `known` (names of some that were read or heard of before) and the one that ``$NNI_OUTBOX``
    names are looked for by name where it lacks them, and come first.
    """
    found = foreign_files.listing(folder, protocol.OUTBOX_FOLDER)
    names = sorted(map(spelled, found.files))
    expected = {*known, protocol.MAIN_OUTBOX}
    unlisted = [name for name in sorted(expected.difference(names)) if _is_outbox(folder, name)]
    if unlisted or not found.is_complete:
        first = sorted([*unlisted, *expected.intersection(names)])
        names = [*first, *(name for name in names if name not in expected)]
    if _is_there(folder, protocol.METRICS_FILE):
        names.append(protocol.METRICS_FILE)
    return Present(names, found.folders, found.is_complete)


def _is_outbox(folder: Folder, name: str) -> bool:
    is_below = name.startswith(protocol.OUTBOX_FOLDER + "/") and "/." not in name
    return is_below and _is_there(folder, file_name(name))


def _is_there(folder: Folder, file: str) -> bool:
    try:
        return foreign_files.size(folder, file) >= 0
    except OSError:
        return False
