"""A cluster as its users reach it: one account's login, shared by all experiments, with one list of jobs for all."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from nni_manager.domain.clock import now_ms
from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.machines.shell import Answer, Shell
from nni_manager.platform_kit.connections import Connection
from nni_manager.platform_kit.contract import NoRoom
from nni_manager.platforms.slurm import commands
from nni_manager.platforms.slurm.listing import (
    Row,
    newest_records,
    queue_rows,
    record_rows,
    settings,
    version_of,
)
from nni_manager.web_services.shared_list import SharedList

#: The first release whose accounting leaves exit codes as they are.
_EXACT_CODES = (25, 11)
#: Seconds in which the accounting receives the exit code of an ended job. It writes code 128 as 0 for good.
_CODE_S = 60.0
#: Seconds in which it receives who cancelled a job.
_USER_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a cluster says of itself, asked once."""

    version: tuple[int, int] | None
    home: str
    has_accounting: bool
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The jobs of the account at one time."""

    #: Start of its call, by the loop's clock.
    at_s: float
    rows: Mapping[str, Row]
    #: Ids that the controller and the accounting, if there is one, answered not to know.
    missing: frozenset[str]
    #: Number of the account's jobs that have not ended.
    open_jobs: int
    #: Whether one of the account's jobs runs.
    has_running: bool


@dataclass(slots=True)
class Followed:
    """The jobs of one experiment: id → name; and ids that the manager has cancelled."""

    names: dict[str, str] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)


class Cluster(Connection):
    """`shell`: of the login. `poll_s`: least time between two lists."""

    def __init__(self, key: str, shell: Shell, poll_s: float) -> None:
        super().__init__(key)
        self.shell = shell
        #: The jobs that each experiment follows, by owner of the lease.
        self.followed: dict[str, Followed] = {}
        self._list = SharedList(self._listed, poll_s)
        self._facts: Facts | None = None
        self._users: dict[str, str] = {}
        #: The accounting's rows of ended jobs, which do not change any more, by id.
        self._records: dict[str, Row] = {}
        #: Id of a job → when its end was first seen without an exit code or without a user, by the loop's clock.
        self._incomplete_s: dict[str, float] = {}

    async def close(self) -> None:
        await self._list.close()
        await self.shell.close()

    async def facts(self) -> Facts:
        """What the cluster says of itself. Raises PlatformUnavailable."""
        if self._facts is None:
            answer = commands.require(await self.ask(commands.FACTS), "sinfo or scontrol")
            found = settings(answer.text)
            storage = found.get("AccountingStorageType", "")
            self._facts = Facts(
                version=version_of(answer.text),
                home=found.get("HOME", ""),
                has_accounting=not storage.endswith(("/none", "(null)")) and bool(storage),
                settings=found,
            )
        return self._facts

    async def snapshot(self, not_before_s: float = float("-inf")) -> Snapshot:
        """The jobs of the account; see `SharedList`."""
        return await self._list.get(not_before_s)

    async def submit(self, arguments: list[str], script: str, variables: Mapping[str, str]) -> str | NoRoom:
        """Submits a job; its id. Raises SubmitRejected and PlatformUnavailable."""
        limit_s = commands.SUBMIT_S + 8.0
        return commands.submitted(await self.ask(commands.submission(arguments), script, limit_s, variables))

    async def find(self, name: str, age_s: float) -> Row | None:
        """The newest job of that name, of the last `age_s` seconds; None: it was never accepted."""
        rows = queue_rows(commands.require(await self.ask(commands.queue(name)), "squeue").text)
        found = [row for row in rows.values() if row.name == name and not row.was_refused]
        if not found and (await self.facts()).has_accounting:
            answer = commands.require(await self.ask(commands.records_of(name, age_s)), "sacct")
            found = [row for row in record_rows(answer.text) if row.name == name and not row.was_refused]
        return max(found, key=lambda row: int(row.id), default=None)

    async def waiting_and_running(self) -> list[Row]:
        """The account's jobs that have not ended, now."""
        rows = queue_rows(commands.require(await self.ask(commands.queue()), "squeue").text)
        return [row for row in rows.values() if row.is_open]

    async def user_name(self, uid: str) -> str:
        """The name of a user; empty: unknown."""
        if uid not in self._users:
            answer = await self.ask(f"id -nu {int(uid)}") if uid.isdigit() else None
            self._users[uid] = answer.text.strip() if answer is not None and answer.rc == 0 else uid
        return self._users[uid]

    async def ask(
        self,
        command: str,
        stdin: str = "",
        limit_s: float = commands.ASK_S,
        variables: Mapping[str, str] | None = None,
    ) -> Answer:
        """The result of a command; the health of the connection is that of the login."""
        try:
            answer = await self.shell.run(command, stdin.encode(), limit_s, variables)
        except PlatformUnavailable as error:
            self.note_down(str(error))
            raise
        self.note_up()
        return answer

    async def _listed(self) -> Snapshot:
        at_s = asyncio.get_running_loop().time()
        names = {id: name for owner in self.followed.values() for id, name in owner.names.items()}
        ours = {id for owner in self.followed.values() for id in owner.cancelled}
        rows = queue_rows(commands.require(await self.ask(commands.queue()), "squeue").text)
        known = {id: row for id, row in rows.items() if names.get(id, row.name) == row.name}
        # the queue does not say who cancelled a job
        by_others = {id for id, row in known.items() if row.state == "CANCELLED" and id in names and id not in ours}
        unknown = await self._look_up({id: names[id] for id in names if id not in known or id in by_others})
        self._incomplete_s = {id: since_s for id, since_s in self._incomplete_s.items() if id in names}
        for id in by_others:
            if id in self._records:
                known[id] = replace(known[id], by=self._records[id].by)
            elif (await self.facts()).has_accounting and self._is_awaited(id, _USER_S):
                known[id] = replace(known[id], state="COMPLETING")
        return Snapshot(
            at_s=at_s,
            rows={**self._records, **known},
            missing=frozenset(unknown - known.keys()),
            open_jobs=sum(row.is_open for row in rows.values()),
            has_running=any(row.is_open and row.state != "PENDING" for row in rows.values()),
        )

    async def _look_up(self, names: Mapping[str, str]) -> set[str]:
        """Reads the accounting's rows of jobs that the queue does not have; returns the ids that it does not have
        either, none if it does not answer."""
        facts = await self.facts()
        self._records = {id: row for id, row in self._records.items() if id in names}
        asked = {id: name for id, name in names.items() if id not in self._records}
        if not asked or not facts.has_accounting:
            return set(asked)
        answer = await self.ask(commands.records(asked))
        if answer.rc != 0:
            return set()
        is_exact = facts.version is not None and facts.version >= _EXACT_CODES
        found = newest_records(answer.text, asked, is_exact)
        # what the accounting calls running has ended, or will be in the queue again
        ended = {id: row for id, row in found.items() if not row.is_open}
        self._records |= {
            id: row for id, row in ended.items() if not (row.is_incomplete and self._is_awaited(id, _CODE_S))
        }
        return asked.keys() - found.keys()

    def _is_awaited(self, id: str, patience_s: float) -> bool:
        """Whether the accounting may still receive the rest of a job's record."""
        now_s = asyncio.get_running_loop().time()
        return now_s - self._incomplete_s.setdefault(id, now_s) < patience_s


def age_s(intended_ms: int) -> float:
    """Seconds since a submission was decided; a day if that is unknown."""
    return max(0.0, (now_ms() - intended_ms) / 1000) if intended_ms else 86400.0
