"""The user's own job, of `openpaiConfigFile` or `openpaiConfig`, as it was when the experiment began."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.experiment import Json


class UserJob:
    """The user's own job.

    `copy`: of the file, made when it is first used, so that all trials run the same; None: only for reading.
    """

    def __init__(self, settings: Json, copy: Path | None) -> None:
        self._inline = settings.get("openpaiConfig")
        self._file = settings.get("openpaiConfigFile")
        self._copy = copy
        #: What `keep` found.
        self.kept: Mapping[str, Any] | None = None

    def keep(self) -> Mapping[str, Any] | None:
        """The user's job, after the file was copied; None: there is none. Blocks. Raises InvalidInput or OSError."""
        if self._file is not None and self._copy is not None and not self._copy.exists():
            text = self._text(Path(str(self._file)))
            self._copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft = self._copy.with_suffix(".draft")
            draft.write_text(text, encoding="utf-8")
            draft.chmod(0o600)  # it may hold secrets of its own
            draft.replace(self._copy)
        self.kept = self.read()
        return self.kept

    def read(self) -> Mapping[str, Any] | None:
        """The user's job, read without leaving anything; None: there is none. Blocks. Raises InvalidInput."""
        if self._file is None:
            return self._inline if isinstance(self._inline, dict) else None
        path = Path(str(self._file))
        if self._copy is not None and self._copy.exists():
            path = self._copy
        return _parsed(self._text(path))

    def _text(self, path: Path) -> str:
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"openpaiConfigFile: {path} cannot be read: {error}") from None


def _parsed(text: str) -> Mapping[str, Any]:
    try:
        job = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidInput(f"openpaiConfigFile: is no YAML: {error}") from None
    roles = job.get("taskRoles") if isinstance(job, dict) else None
    if not isinstance(roles, dict) or not roles or not all(isinstance(its, dict) for its in roles.values()):
        raise InvalidInput("openpaiConfigFile: must hold a job with taskRoles, a mapping of names to roles")
    return job  # type: ignore[no-any-return]
