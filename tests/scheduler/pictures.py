"""Snapshots in a few words, and what a plan makes of them."""

from __future__ import annotations

import json
from typing import Any

from nni_manager.domain.algorithm import AlgorithmSpec
from nni_manager.domain.attempt import Attempt
from nni_manager.domain.experiment import (
    ExperimentSpec,
    ExperimentStatus,
    Hold,
    HoldCode,
    NeedlessCheckpoint,
    PlatformSpec,
    StoredExperiment,
    StoredState,
)
from nni_manager.domain.ids import job_name
from nni_manager.domain.results.final_result import ReportedResult
from nni_manager.domain.space.parameters import Proposal
from nni_manager.domain.trial import OpenTrial, StopRequest
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.platform_kit.contract import Capabilities
from nni_manager.scheduler.planning.decisions import AskTuner, Cancel, Decisions, Forget, Submit
from nni_manager.scheduler.planning.plan import SUBMITTED, plan
from nni_manager.scheduler.planning.snapshot import ProcessState, ServiceState, Snapshot

NOW = 1_000_000
#: Wait code → what `spec` and `hold` make of it.
SENTENCES = {
    "CONCURRENCY": "all 2 slots of trialConcurrency are taken",
    "SUBMITTED": SUBMITTED.sentence,
    "HOLD": "the experiment is on hold: put it right",
}
HANDLE = json.dumps({"platform": "fake", "version": 1, "data": ""})
RECORD = '{"parameter_id": 0, "parameter_source": "algorithm", "parameters": {"x": 1}, "parameter_index": 0}'


def spec(**changes: Any) -> ExperimentSpec:
    """Two at a time, no limits."""
    fields: dict[str, Any] = {
        "name": None,
        "search_space": {},
        "trial_command": "true",
        "trial_code_directory": "/code",
        "trial_concurrency": 2,
        "trial_gpu_number": None,
        "max_experiment_duration_s": None,
        "max_trial_number": None,
        "max_trial_duration_s": None,
        "debug": False,
        "log_level": "info",
        "working_directory": "/work",
        "tuner_gpu_indices": None,
        "tuner": AlgorithmSpec(name="Random"),
        "assessor": None,
        "platforms": (PlatformSpec(name="fake", service="fake", settings={}),),
    }
    return ExperimentSpec(**{**fields, **changes})


def experiment(status: str = "RUNNING", **changes: Any) -> StoredExperiment:
    """Made at 0, counted until now."""
    fields: dict[str, Any] = {
        "id": "exp1",
        "error": "",
        "hold": None,
        "config": "{}",
        "created_ms": 0,
        "ended_ms": None,
        "exec_ms": 0,
        "counted_ms": NOW,
        "next_sequence_id": 0,
        "next_parameter_id": 0,
        "ended_trials": 0,
        "resumed_end": 0,
        "revision": 1,
    }
    return StoredExperiment(status=ExperimentStatus(status), **{**fields, **changes})


def job(id: str, state: str, attempt: int = 1, **changes: Any) -> Attempt:
    fields: dict[str, Any] = {"handle": None if state == "INTENT" else HANDLE, "service": "fake"}
    return Attempt(id, attempt, job_name("exp1", id, attempt), state, **{**fields, **changes})


def service_state(**fields: Any) -> ServiceState:
    """Fields of the service's state, and of its adapter's capabilities."""
    state = {name: fields.pop(name) for name in ServiceState.__dataclass_fields__ if name in fields}
    return ServiceState(capabilities=Capabilities(watches=True, reads_files=False, **fields), **state)


#: Fields of `service_state`.
OF_A_SERVICE = (ServiceState.__dataclass_fields__ | Capabilities.__dataclass_fields__).keys()


def trial(
    id: str,
    status: str = "WAITING",
    state: str = "",
    *,
    asked: str = "",
    attempt: int = 1,
    wait: str = "",
    details: str = "{}",
    wait_ms: int = 0,
    started: int | None = None,
    record: str = RECORD,
    sequence: int = 0,
    has_final: bool = False,
    further_finals: int = 0,
    **evidence: Any,
) -> OpenTrial:
    """`state` of its job; empty: it has none."""
    return OpenTrial(
        id=id,
        sequence_id=sequence,
        status=TrialStatus(status),
        record=record,
        created_ms=0,
        started_ms=started,
        attempt=attempt,
        asked=StopRequest(asked) if asked else None,
        wait_code=wait,
        wait_sentence=SENTENCES.get(wait, ""),
        wait_details=details,
        wait_ms=wait_ms,
        job=job(id, state, attempt, **evidence) if state else None,
        has_final=has_final,
        further_finals=further_finals,
    )


def running(id: str, **changes: Any) -> OpenTrial:
    return trial(id, "RUNNING", "RUNNING", **{"started": NOW - 1000, **changes})


def waiting(id: str, **changes: Any) -> OpenTrial:
    return trial(id, **changes)


def ended(id: str, state: str = "SUCCEEDED", **changes: Any) -> OpenTrial:
    """Its job has ended; the plan has not seen it yet."""
    return trial(id, "RUNNING", state, **{"started": NOW - 1000, **changes})


def hold(code: str = "TUNER_RAISED") -> Hold:
    return Hold(code=HoldCode(code), sentence="put it right")


def proposals(*numbers: int) -> tuple[Proposal, ...]:
    return tuple(Proposal(parameter_id=number, values={"x": number}) for number in numbers)


class Plan:
    """The plan of a snapshot, in short words."""

    def __init__(
        self,
        *trials: OpenTrial,
        row: StoredExperiment | None = None,
        config: ExperimentSpec | None = None,
        retries: dict[str, tuple[int, int]] | None = None,
        first_ended: tuple[tuple[str, str, str, str, str], ...] = (),
        last_keys: tuple[str, ...] = (),
        failed: int = 0,
        drained: tuple[str, ...] = (),
        missing: dict[str, dict[str, tuple[int, int]]] | None = None,
        stored: dict[str, dict[str, int]] | None = None,
        left: dict[str, str] | None = None,
        needless: tuple[NeedlessCheckpoint, ...] = (),
        reported: dict[str, ReportedResult] | None = None,
        **here: Any,
    ) -> None:
        chosen = config or spec()
        every = {name: here.pop(name) for name in OF_A_SERVICE if name in here}
        states = {p.service: service_state(**every) for p in chosen.platforms} | here.pop("services", {})
        holds = here.pop("holds", {})
        state = ProcessState(**{"now_ms": NOW, "services": states, **here})
        undelivered: dict[str, dict[str, tuple[int, int]]] = {job_name("exp1", id, 1): {} for id in drained}
        undelivered |= {job_name("exp1", id, 1): outboxes for id, outboxes in (missing or {}).items()}
        known = StoredState(
            experiment=row or experiment(next_sequence_id=len(trials)),
            holds=holds,
            open_trials=trials,
            retries={t.id: (0, 0) for t in trials if t.job is not None and t.job.has_ended} | (retries or {}),
            offsets={t.job.job_name: {} for t in trials if t.job is not None} | (stored or {}),
            missing=undelivered,
            fresh_ids=tuple(f"new{n:02}" for n in range(len(state.proposals))),
            first_ended=first_ended,
            last_keys=last_keys,
            failed=failed,
            left=left or {},
            needless=needless,
            reported=reported or {},
        )
        self.snapshot = Snapshot.of(known, chosen, state)
        self.decisions: Decisions = plan(self.snapshot)

    def records(self, kind: type) -> list[Any]:
        return [record for record in self.decisions.records if isinstance(record, kind)]

    @property
    def submitted(self) -> list[str]:
        return [call.attempt.trial_id for call in self.decisions.calls if isinstance(call, Submit)]

    @property
    def cancelled(self) -> list[str]:
        return [call.handle.job_name[-5:] for call in self.decisions.calls if isinstance(call, Cancel)]

    @property
    def forgotten(self) -> list[str]:
        return [call.handle.job_name for call in self.decisions.calls if isinstance(call, Forget)]

    @property
    def asked(self) -> int:
        return sum(call.count for call in self.decisions.calls if isinstance(call, AskTuner))

    @property
    def wake_at(self) -> int | None:
        return self.decisions.wake_at_ms
