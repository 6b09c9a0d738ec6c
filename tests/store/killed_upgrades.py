"""Upgrades of an old database, each killed at another line: ``python -m tests.store.killed_upgrades FOLDER DATABASE``.

Prints at how many places it was killed. A process of its own, as it makes children by fork.
"""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

from nni_manager.store import migrate, private, upgrade
from nni_manager.store.connection import connect
from nni_manager.store.folder import Folder
from nni_manager.store.private import Kept

_SECRET, _VARIABLE = "a-secret-of-the-wasps", "a-variable-of-the-wasps"
_TRACED = {module.__file__ for module in (migrate, private, upgrade)}
_KILLED = 9


def make_folder(path: Path, database: Path, secret: str, variable: str) -> Folder:
    """A folder with that database, which has been written with a secret twice, and a copy beside it."""
    folder = Folder(path)
    folder.create(path.parent)
    shutil.copy(database, folder.database)
    with closing(connect(folder.database)) as connection:
        for value in (f"{secret} of yesterday", secret):
            connection.execute("INSERT OR REPLACE INTO secrets VALUES ('${TOKEN}', ?)", (value,))
        connection.execute("UPDATE experiment SET environment = ?", (f'{{"PATH": "{variable}"}}',))
    shutil.copy(folder.database, folder.database.with_name("nni.sqlite.v9.bak"))
    return folder


def shown(folder: Folder, *texts: str) -> list[str]:
    """Files beside the private one that hold one of the texts."""
    files = [one for one in folder.path.rglob("*") if one.is_file() and one != folder.private]
    return [one.name for one in files if any(text.encode() in one.read_bytes() for text in texts)]


def upgrade_until(line: int, folder: Folder) -> bool:
    """Upgrades in a child that is killed when it comes to the line of that number; whether it got that far."""
    if (child := os.fork()) == 0:
        left = line

        def look(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal left
            if frame.f_code.co_filename not in _TRACED:
                return None
            if event == "line":
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), _KILLED)
            return look

        sys.settrace(look)
        try:
            upgrade.upgrade(folder)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def main(directory: Path, database: Path) -> int:
    places = 0
    while True:
        folder = make_folder(directory / str(places), database, _SECRET, _VARIABLE)
        was_killed = upgrade_until(places + 1, folder)
        upgrade.upgrade(folder)
        found = private.load(folder.private)
        assert found == Kept(environment={"PATH": _VARIABLE}, secrets={"${TOKEN}": _SECRET}), places
        assert shown(folder, _SECRET, _VARIABLE) == [], (places, shown(folder, _SECRET, _VARIABLE))
        shutil.rmtree(folder.path)
        if not was_killed:
            return places
        places += 1


if __name__ == "__main__":
    print(main(Path(sys.argv[1]), Path(sys.argv[2])))
