"""The state of a code directory in git: commit, branch, remote, uncommitted changes.

Files that git ignores are never read. Of untracked files, only the names are listed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Any

from nni_manager.platform_kit.secret_texts import SecretTexts
from nni_manager.provenance import child
from nni_manager.provenance.child import NoAnswer
from nni_manager.provenance.masked_diff import masked

#: Bytes of the diff that are kept.
MOST_DIFF = 2**20
#: Bytes of git's other answers, and names of unknown files that are kept.
_MOST_WORDS = 65536
MOST_UNTRACKED = 200
#: Programs that a repository's configuration names are not run, and nothing is asked or written.
_QUIET = (
    *("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "diff.external="),
    *("-c", "core.quotePath=false"),
)
#: The allowed protocol does not exist: objects that a partial clone lacks are not fetched.
_SETTINGS = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_PAGER": "cat",
    "LC_ALL": "C",
}
#: Scopes of git's configuration that belong to the user or the machine, not to the checkout.
_TRUSTED_SCOPES = frozenset({"system", "global"})
#: git enters a submodule with the submodule's own configuration, which may name programs: only its commit is compared.
_NO_SUBMODULES = "--ignore-submodules=dirty"
#: In place of a commit.
_INITIAL = "(initial)"
#: Beginnings of lines about tracked files that differ: changed, renamed, unmerged.
_CHANGED = ("1 ", "2 ", "u ")
_NO_REPOSITORY = "the folder is not in a git repository, or in one of another user"


#: The record of a directory in an unknown state; see `Provenance` of the API for the fields.
_UNKNOWN = {
    "commit": "",
    "branch": "",
    "remote": "",
    "diff": "",
    "isDiffCut": False,
    "maskedValues": 0,
    "untracked": [],
    "problem": "",
}


async def look(directory: str, environment: Mapping[str, str], secrets: SecretTexts) -> dict[str, Any]:
    """The state from git for the record; never raises.

    `environment`: of the caller, for PATH and the user's configuration.
    """
    path = shutil.which("git", path=environment.get("PATH", os.defpath))
    if path is None:
        return {**_UNKNOWN, "directory": directory, "problem": "the program git is not on the PATH"}
    git = _Git(path, directory, environment)
    try:
        return await _state(git, directory, secrets)
    except NoAnswer as error:
        return {**_UNKNOWN, "directory": directory, "problem": str(error)}


class _Git:
    def __init__(self, path: str, directory: str, environment: Mapping[str, str]) -> None:
        self._path, self._directory = path, directory
        kept = {name: value for name, value in environment.items() if not name.startswith("GIT_")}
        self._environment = {**kept, **_SETTINGS}
        self._quiet: tuple[str, ...] = _QUIET

    async def turn_off_filters(self) -> None:
        """Replace each filter setting of the checkout with that of the user or the machine, or with none.

        Raises NoAnswer."""
        listed = await self.ask("config", "--list", "--show-scope", "-z")
        words = listed.data.decode(errors="surrogateescape").split("\0")
        trusted, foreign = dict[str, str](), dict[str, str]()
        for scope, entry in zip(words[::2], words[1::2], strict=False):
            key, _, value = entry.partition("\n")
            if scope in _TRUSTED_SCOPES:
                trusted[key] = value
            elif key.startswith("filter."):
                foreign[key] = "false" if key.endswith(".required") else ""
        if listed.is_cut or any("=" in key for key in foreign):
            raise NoAnswer("the repository's configuration is too long, or names a filter that cannot be turned off")
        settings = {**foreign, **{key: trusted[key] for key in foreign.keys() & trusted.keys()}}
        self._quiet = (*_QUIET, *(word for key, value in settings.items() for word in ("-c", f"{key}={value}")))

    async def ask(self, *words: str, most: int = _MOST_WORDS) -> child.Output:
        """The output of a git command. Raises NoAnswer."""
        command = (self._path, *self._quiet, *words)
        return await child.read(command, directory=self._directory, environment=self._environment, most=most)

    async def line(self, *words: str) -> str:
        """The output of a git command in one line, or empty."""
        try:
            return (await self.ask(*words)).data.decode(errors="replace").strip()
        except NoAnswer:
            return ""


async def _state(git: _Git, directory: str, secrets: SecretTexts) -> dict[str, Any]:
    await git.turn_off_filters()
    words = ("--porcelain=v2", "--branch", "--untracked-files=all", _NO_SUBMODULES, "-z", "--", ".")
    try:
        status = await git.ask("status", *words)
    except NoAnswer:
        return {**_UNKNOWN, "directory": directory, "problem": _NO_REPOSITORY}
    entries = status.data.decode(errors="replace").split("\0")[: -1 if status.is_cut else None]
    head = dict(entry[2:].partition(" ")[::2] for entry in entries if entry.startswith("# "))
    untracked = [entry[2:] for entry in entries if entry.startswith("? ")]
    found = {
        **_UNKNOWN,
        "directory": directory,
        "branch": head.get("branch.head", "").replace("(detached)", ""),
        "remote": secrets.redacted(await git.line("config", "--get", "remote.origin.url")),
        "untracked": untracked[:MOST_UNTRACKED],
    }
    if (commit := head.get("branch.oid", _INITIAL)) == _INITIAL:
        return {**found, "problem": "nothing has been committed yet"}
    has_changes = any(entry[:2] in _CHANGED for entry in entries)
    return {**found, "commit": commit, **(await _diff(git, secrets) if has_changes else {})}


async def _diff(git: _Git, secrets: SecretTexts) -> dict[str, Any]:
    words = ("--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short", _NO_SUBMODULES, "--", ".")
    diff = await git.ask("diff", "HEAD", *words, most=MOST_DIFF)
    text, values = await masked(_whole_lines(diff), secrets)
    return {"diff": text, "isDiffCut": diff.is_cut, "maskedValues": values}


def _whole_lines(diff: child.Output) -> bytes:
    """The complete lines of a diff, because the beginning of a secret in a cut line would not be recognized."""
    return diff.data[: diff.data.rfind(b"\n") + 1] if diff.is_cut else diff.data
