"""Checks before the first job: the cluster answers, would take a job with the section's options and start it some day.

`sbatch` accepts many jobs that never start; `sbatch --test-only` finds most of these, and settings of the partition the
rest. Where a job may be submitted, one checks the shared folder from a node.
"""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from nni_manager.domain.errors import BadCredentials, PlatformUnavailable
from nni_manager.machines.shell import Answer, NoAnswer
from nni_manager.platform_kit.contract import PreflightFinding, Severity
from nni_manager.platforms.slurm import commands
from nni_manager.platforms.slurm.cluster import Cluster, Facts
from nni_manager.platforms.slurm.config import SlurmConfig
from nni_manager.platforms.slurm.script import options
from nni_manager.web_services.account import WebLease

#: Seconds for the job that checks the shared folder, the queue included.
_PROBE_S = 40
_OLDEST = (20, 2)
_PROBE = "nni-manager-probe"
#: What Slurm says of options that no node meets, also if such nodes are only away.
_NO_NODES = "Requested node configuration is not available"
_WORKING = ("idle", "mixed", "alloc", "comp", "reserved", "planned")
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<rest>\d+(?::\d+){0,2})")


async def look(
    config: SlurmConfig, lease: WebLease[Cluster], folder: Path, *, may_submit: bool
) -> Sequence[PreflightFinding]:
    """The findings on a cluster. `folder`: of the jobs, if they share it with this machine."""
    try:
        facts = await lease.call(lambda cluster: cluster.facts())
        found = [one async for one in _Examination(config, lease, facts).findings()]
        if may_submit and not any(one.severity is Severity.WRONG for one in found):
            found.append(await _look_from_a_node(config, lease, facts, folder))
    except BadCredentials as error:
        return [PreflightFinding(Severity.WRONG, "login", str(error), "correct the fields of login")]
    except PlatformUnavailable as error:
        return [PreflightFinding(Severity.AWAY, "cluster", str(error))]
    return found


class _Examination:
    """The cluster's settings that a job with the section's options meets."""

    def __init__(self, config: SlurmConfig, lease: WebLease[Cluster], facts: Facts) -> None:
        self._config = config
        self._lease = lease
        self._facts = facts

    async def findings(self) -> AsyncIterator[PreflightFinding]:
        """What is wrong, and one finding if nothing is."""
        yield self._version()
        account = await self._account()
        if finding := self._of_accounting(account):
            yield finding
        elif account and (finding := await self._limits(account)):
            yield finding
        is_wrong = False
        async for finding in self._partition(account):
            is_wrong = is_wrong or finding.severity is Severity.WRONG
            yield finding
        if not is_wrong:
            yield await self._tested()

    def _version(self) -> PreflightFinding:
        version = self._facts.version
        told = "unknown" if version is None else f"{version[0]}.{version[1]:02}"
        if version is not None and version < _OLDEST:
            fix = "use a cluster with Slurm 20.02 or newer"
            return PreflightFinding(Severity.WRONG, "version", f"the cluster has Slurm {told}", fix)
        return PreflightFinding(Severity.FINE, "cluster", f"Slurm {told} answers")

    async def _account(self) -> str | None:
        """The account of jobs; empty: the user has none; None: unknown."""
        if self._config.account is not None or not self._facts.has_accounting:
            return self._config.account
        answer = await self._ask('exec sacctmgr -nP show user "$(id -un)" format=DefaultAccount')
        return answer.text.strip() if answer.rc == 0 else None

    def _of_accounting(self, account: str | None) -> PreflightFinding | None:
        """What is wrong with the accounting; None: nothing."""
        subject = "accounting"
        if account == "":
            sentence = "the user has no account in Slurm's accounting"
            return PreflightFinding(Severity.WRONG, subject, sentence, "ask the administrator for one")
        if not self._facts.has_accounting:
            sentence = "the cluster has none: a job that Slurm forgets before it is read counts as lost"
            return PreflightFinding(Severity.WARNING, subject, sentence)
        if account is None:
            return PreflightFinding(Severity.WARNING, subject, "it does not answer: ends of jobs may be seen late")
        return None

    async def _limits(self, account: str) -> PreflightFinding | None:
        """The account's limits for the user; None: unknown."""
        fields = "account,qos,maxjobs,maxsubmit"
        answer = await self._ask(f'exec sacctmgr -nP show assoc user="$(id -un)" format={fields}')
        sentence = limits_of(answer.text, account) if answer.rc == 0 else ""
        return PreflightFinding(Severity.FINE, "account", sentence) if sentence else None

    async def _partition(self, account: str | None) -> AsyncIterator[PreflightFinding]:
        """What the partition does not admit."""
        answer = await self._ask("exec scontrol --oneliner show partition")
        partitions = [_fields(line) for line in answer.text.splitlines()]
        name = self._config.partition
        chosen = [one for one in partitions if one.get("PartitionName") == name or (not name and _is_default(one))]
        for partition in chosen[:1]:
            shown = partition["PartitionName"]
            if (state := partition.get("State", "UP")) != "UP":
                sentence = f"the partition {shown} is {state}: its jobs wait"
                yield PreflightFinding(Severity.WARNING, "partition", sentence, "use another partition, or wait")
            allowed = partition.get("AllowAccounts", "ALL")
            if account and allowed != "ALL" and account not in allowed.split(","):
                sentence = f"the account {account} may not use the partition {shown}, which admits {allowed}"
                yield PreflightFinding(Severity.WRONG, "account", sentence, "change account or partition")
            limit, most = minutes_of(self._config.time_limit or ""), minutes_of(partition.get("MaxTime", ""))
            if limit is not None and most is not None and limit > most:
                sentence = f"{self._config.time_limit} is above the limit of partition {shown}, {partition['MaxTime']}"
                yield PreflightFinding(Severity.WRONG, "timeLimit", sentence, "lower timeLimit")

    async def _tested(self) -> PreflightFinding:
        """Whether Slurm would take and start a job with the section's options."""
        given = shlex.join(options(self._config, self._config.trial_gpu_number))
        answer = await self._ask(f"exec sbatch --test-only {given} --wrap true")
        if answer.rc == 0:
            return PreflightFinding(Severity.FINE, "options", "Slurm would start a job with these options")
        if commands.is_away(answer):
            raise commands.fault_of(answer, "sbatch")
        sentence = f"Slurm would not start a job with these options: {commands.shown(answer.complaint)}"
        if _NO_NODES in answer.complaint and (away := await self._nodes_away()):
            sentence += f"; {away} of its nodes are down or drained"
            return PreflightFinding(Severity.WARNING, "options", sentence, "jobs wait until they are back")
        return PreflightFinding(Severity.WRONG, "options", sentence, "change the field that the message is about")

    async def _nodes_away(self) -> int:
        """Number of the partition's nodes that take no jobs now."""
        named = f" --partition={shlex.quote(self._config.partition)}" if self._config.partition else ""
        answer = await self._ask(f"exec sinfo --noheader --Node --format=%T{named}")
        return sum(not state.startswith(_WORKING) for state in answer.text.split())

    async def _ask(self, command: str) -> Answer:
        return await self._lease.call(lambda cluster: cluster.ask(command))


async def _look_from_a_node(
    config: SlurmConfig, lease: WebLease[Cluster], facts: Facts, folder: Path
) -> PreflightFinding:
    """The finding of a job that reads and writes the shared folder."""
    there = config.folder or (f"{facts.home}/.nni-manager" if config.login is not None else str(folder))
    mark = f"{there}/.{_PROBE}-{secrets.token_hex(8)}"
    quoted = shlex.quote(mark)
    script = f"#!/bin/bash\n{config.prologue or ''}\n[ -e {quoted} ] || exit 66\npython3 --version > {quoted} 2>&1\n"
    given = shlex.join(options(config, 0))
    submit = f"sbatch --quiet --wait --job-name={_PROBE} --output=/dev/null --chdir=/ {given}"
    command = (
        f"umask 077; mkdir -p {shlex.quote(there)} && : > {quoted} || exit 65\n"
        f"timeout -s INT {_PROBE_S} {submit}; rc=$?; cat {quoted}; rm -f {quoted}\n"
        f"scancel --quiet --me --state=PENDING --name={_PROBE}; exit $rc"
    )
    try:
        answer = await lease.call(lambda cluster: cluster.ask(command, script, _PROBE_S + 10.0))
    except NoAnswer as error:
        return PreflightFinding(Severity.WARNING, "folder", f"a job on a node was not checked: {error}")
    return _of_probe(answer, there)


#: Exit codes of the probe: the folder cannot be made here; a node does not have it.
_NOT_HERE, _NOT_THERE = 65, 66
_INTERRUPTED = frozenset((124, 130))


def _of_probe(answer: Answer, folder: str) -> PreflightFinding:
    if answer.rc == 0:
        return PreflightFinding(
            Severity.FINE, "folder", f"a node reads and writes {folder}; it has {answer.text.strip()}"
        )
    if answer.rc == _NOT_HERE:
        sentence = f"{folder} cannot be written on the login node: {answer.complaint[-200:]}"
        return PreflightFinding(Severity.WRONG, "folder", sentence, "set folder to a folder that you may write")
    if answer.rc == _NOT_THERE:
        sentence = f"a node does not see {folder} of the login node"
        return PreflightFinding(Severity.WRONG, "folder", sentence, "set folder to storage that all nodes share")
    if answer.rc in _INTERRUPTED:
        sentence = f"the job that checks {folder} from a node still waits in the queue after {_PROBE_S} s"
        return PreflightFinding(Severity.WARNING, "folder", sentence, "run doctor again when the queue is shorter")
    sentence = (
        f"the job that checks {folder} from a node failed: {answer.text.strip() or commands.shown(answer.complaint)}"
    )
    return PreflightFinding(Severity.WRONG, "folder", sentence, "check that the nodes have python3; see prologue")


def limits_of(text: str, account: str) -> str:
    """The user's limits in an account as a sentence; empty: unknown. `text`: rows of account, QOS and two limits."""
    rows = [line.split("|") for line in text.splitlines() if line.count("|") == 3]
    own = next((row for row in rows if row[0] == account), None)
    if own is None:
        return ""
    _, qos, running, submitted = own
    limits = [f"{number} {what}" for number, what in ((running, "running"), (submitted, "submitted")) if number]
    allowed = f"allows {' and '.join(limits)} jobs at a time" if limits else "has no limit on its number of jobs"
    return f"the account {account} {allowed}" + (f"; QOS: {qos.replace(',', ', ')}" if qos else "")


def minutes_of(text: str) -> float | None:
    """Minutes of a time in Slurm's notation; None: unlimited, or not a time."""
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    parts = [int(part) for part in found["rest"].split(":")]
    if found["days"] is not None:  # days-hours[:minutes[:seconds]]
        hours, minutes, seconds = [*parts, 0, 0][:3]
        return (int(found["days"]) * 24 + hours) * 60 + minutes + seconds / 60
    if len(parts) == 3:
        return parts[0] * 60 + parts[1] + parts[2] / 60
    return parts[0] + (parts[1] / 60 if len(parts) > 1 else 0)


def _fields(line: str) -> Mapping[str, str]:
    pairs = (word.partition("=") for word in line.split())
    return {name: value for name, _, value in pairs}


def _is_default(partition: Mapping[str, str]) -> bool:
    return partition.get("Default") == "YES"
