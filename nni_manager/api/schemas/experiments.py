"""Experiments in the API's answers and requests."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, JsonValue, WithJsonSchema

from nni_manager.api.schemas.daemon import Sent, Wire
from nni_manager.api.schemas.platforms import TrainingService
from nni_manager.api.schemas.provenance import Provenance
from nni_manager.domain.experiment import ExperimentStatus, HoldCode
from nni_manager.domain.metrics import OptimizeMode
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.store.index.best_results import MOST
from nni_manager.store.index.labels import LONGEST_TAG, MOST_NOTES

_ONE_STATUS = (
    "Status in NNI's terms: RUNNING; NO_MORE_TRIAL and TUNER_NO_MORE_TRIAL (no new trials start, trials still run); "
    "DONE; ERROR (cannot continue, `resume` tries again); STOPPING; STOPPED (`resume` opens it again); "
    "VIEWED (open for reading only)."
)


#: Of what lists show.
_NOT_KNOWN = " null: unknown, for a closed experiment of NNI or an earlier version."


class Hold(Wire):
    """Why no new trials start although the experiment has not ended. Running trials continue."""

    code: HoldCode = Field(description="The kind of reason.")
    sentence: str = Field(description="What happened and what to do.")
    details: str = Field(description="Traceback or stack, or empty.")


class ExperimentWarning(Wire):
    """A warning. It neither refuses nor delays anything."""

    code: str = Field(description="The kind, for programs.", examples=["TRIAL_PORT_MOVED"])
    message: str = Field(description="The situation and what to do; for a file, with line and field.")


class Best(Wire):
    """The best successful trial so far, by the tuner's `optimize_mode`."""

    trial_id: str = Field(description="Its id.")
    value: float = Field(description="Number of its final result; always finite.")
    parameters: JsonValue = Field(description="Its parameters, as it got them.")


class ParetoTrial(Wire):
    """A trial of the Pareto set: no other trial is better in every one of the `objectives`."""

    trial_id: str = Field(description="Its id.")
    values: dict[str, float] = Field(description="Objective → its number in the trial's final result.")
    is_feasible: bool = Field(
        description="Whether it satisfies all `constraints`. While no trial does, the set contains those that "
        "violate them least."
    )
    parameters: JsonValue = Field(description="Its parameters, as it got them.")


class CommonFailure(Wire):
    """The failure that most of the failed trials have in common, by `failureKey`."""

    trials: int = Field(description="Number of trials with this failure.")
    trial_id: str = Field(description="The newest of them.")
    sentence: str = Field(description="How that trial ended, with the line of its stderr that shows the reason.")


class NewEndpoint(Sent):
    """A separate port for an experiment's page and NNI's API, both at the root, as in NNI."""

    port: Annotated[int, Field(ge=0, le=65535)] | None = Field(
        default=None,
        description="TCP port; 0: any free one. null: none if the daemon's service shows the experiment or the daemon "
        "opens no ports; else `firstPort`, or the next free port.",
    )
    first_port: Annotated[int, Field(ge=0, le=65535)] | None = Field(
        default=None,
        description="First TCP port to try without a `port`; 0: any free one. null: `port` in the daemon's settings.",
    )
    url_prefix: str = Field(default="", description="Prefix of every path, or empty.", max_length=400)


class ExperimentEndpoint(Wire):
    """The endpoint of an experiment: where its own page and NNI's API are served."""

    port: int = Field(description="TCP port.")
    url_prefix: str = Field(description="Prefix of every path, without outer slashes, or empty.")
    url: str = Field(description="Address of the page: `http://host:port` and the prefix. NNI's API is below it.")


class WaitingFor(Wire):
    """What delays an experiment. It may end without a user's action."""

    sentence: str = Field(description="What the experiment waits for.", examples=["remote is away: no route to host"])
    since_ms: int | None = Field(description="Since when, milliseconds since the epoch; null: unknown.")


class ExperimentSummary(Wire):
    """An experiment in lists."""

    id: str = Field(description="Id of the experiment.", examples=["k3v9x0qa"])
    name: str | None = Field(description="`experimentName` of its config; null: none.")
    platform: str = Field(description="Platforms of its trials, such as `local`; comma-separated.")
    status: ExperimentStatus = Field(description=_ONE_STATUS)
    hold: Hold | None = Field(description="Why no new trials start; null: not on hold, or stopped.")
    errors: list[str] = Field(description="All problems that keep it from continuing, one sentence each.")
    waits_for: WaitingFor | None = Field(
        description="What it waits for while it is open: a service that is away or on hold, unreachable jobs, or a "
        "place for its next trial while no trial runs; null: nothing, or unknown."
    )
    created_ms: int = Field(description="When it was created, milliseconds since the epoch.")
    ended_ms: int | None = Field(description="When it became DONE, ERROR or STOPPED; null before.")
    ended_as: Literal["DONE"] | None = Field(
        description="DONE: it was stopped after it was done, so its status is STOPPED; null: it is open, or was "
        "stopped before it was done."
    )
    log_path: str = Field(description="Its folder on the daemon's machine: database, logs, trials.")
    endpoint: ExperimentEndpoint | None = Field(
        description="Its own port; null: none. `errors` reports a port that is not open."
    )
    counts: dict[TrialStatus, int] | None = Field(description=f"Number of trials by status, without zeros.{_NOT_KNOWN}")
    trials_made: int | None = Field(description=f"Number of trials, in any status.{_NOT_KNOWN}")
    max_trial_number: int | None = Field(description="Maximum number of trials; null: unlimited, or unknown.")
    optimize_mode: OptimizeMode | None = Field(
        description=f"Which results are better, according to its tuner.{_NOT_KNOWN}"
    )
    direction_note: str | None = Field(
        description="Origin of `optimizeMode` if the experiment file does not set it, such as `default of TPE` or "
        f"`direction not set`; empty: the file sets it.{_NOT_KNOWN}",
        examples=["default of TPE"],
    )
    best: Best | None = Field(
        description="The best trial; null: no trial has succeeded with a finite number, there are several "
        "`objectives`, or `counts` is null."
    )
    objectives: dict[str, OptimizeMode] | None = Field(
        description="Of its config: key of final results → which are better; empty: the number, or its `default`."
        f"{_NOT_KNOWN}"
    )
    pareto_set: list[ParetoTrial] | None = Field(
        description="With `objectives`: trials of the Pareto set, ordered by the first objective, at "
        f"most {MOST}; else empty.{_NOT_KNOWN}"
    )
    pareto_size: int | None = Field(description=f"Number of trials in the Pareto set.{_NOT_KNOWN}")
    common_failure: CommonFailure | None = Field(
        description="The most common failure; null: no trial failed, or `counts` is null."
    )
    notes: str = Field(description="Notes of users; empty: none.")
    tags: list[str] = Field(description="Tags of users, for filters of lists.", examples=[["paper"]])
    archived: bool = Field(description="Whether the page's list hides it by default.")


class ExperimentState(ExperimentSummary):
    """An experiment without its config, as in events."""

    exec_duration_ms: int = Field(description="Active time in milliseconds, without time on hold or DONE.")
    trial_concurrency: int = Field(description="Maximum number of trials at a time.")
    max_trial_number: int | None = Field(description="Maximum number of trials; null: unlimited.")
    max_experiment_duration: int | str | None = Field(
        description="Maximum active time, as in the config: seconds, or text such as `2h`; null: unlimited."
    )
    max_trial_duration: int | str | None = Field(
        description="Maximum time of a trial, as in the config: seconds, or text such as `10m`; null: unlimited."
    )
    counts: dict[TrialStatus, int] = Field(description="Number of trials by status, without zeros.")
    trials_made: int = Field(description="Number of trials, in any status.")
    no_more_trials: str = Field(
        description="Why no more trials are created: a limit, or the tuner; empty: more are created."
    )
    optimize_mode: OptimizeMode = Field(
        description="Which results are better, greater or smaller ones, according to its tuner."
    )
    direction_note: str = Field(
        description="Origin of `optimizeMode` if the experiment file does not set it, such as `default of TPE` or "
        "`direction not set`; empty: the file sets it."
    )
    best: Best | None = Field(
        description="The best trial; null: no trial has succeeded with a finite number, or there are several "
        "`objectives`."
    )
    objectives: dict[str, OptimizeMode] = Field(
        description="Of its config: key of final results → which are better; empty: the number, or its `default`."
    )
    pareto_set: list[ParetoTrial] = Field(
        description="With `objectives`: trials of the Pareto set, ordered by the first objective, at "
        f"most {MOST}; else empty."
    )
    pareto_size: int = Field(description="Number of trials in the Pareto set.")
    common_failure: CommonFailure | None = Field(description="The most common failure; null: no trial failed.")
    services: list[TrainingService] = Field(
        description="Its training services, in the order of the config; removed ones come last."
    )
    warnings: list[ExperimentWarning] = Field(description="Warnings about the experiment file and the current state.")
    revision: int = Field(description="Grows with every change of config or status.")


class Experiment(ExperimentState):
    """An experiment with its config, without its trials."""

    config: dict[str, JsonValue] = Field(
        description="The config in canonical form: camelCase, without unset fields, with absolute paths. "
        "Secrets are masked with `******`, or are references."
    )
    variables: int | None = Field(
        description="Number of stored variables of its creator's environment; null: it is closed, or they are "
        "not in its folder."
    )
    references: list[str] = Field(description="References in its secret fields: `${VARIABLE}`, `file:/path`.")


class ExperimentList(Wire):
    total: int = Field(description="Number of matching experiments, regardless of `limit` and `offset`.")
    experiments: list[ExperimentSummary] = Field(description="The requested page.")


class NewExperiment(Wire):
    """An experiment file with the context of the caller."""

    config: str = Field(description="Text of the experiment file, YAML or JSON.")
    file: str = Field(default="", description="The file's name in messages.")
    directory: str = Field(default="", description="Absolute base folder of relative paths in the config.")
    environment: dict[str, str] | None = Field(
        default=None,
        description="Environment of trials and tuner, as far as `callerEnvironment` keeps it. Default: the "
        "daemon's own environment.",
        repr=False,
    )
    interpreter: str = Field(
        default="",
        description="The Python that runs a user's tuner or assessor, instead of `tunerPython` in the config: an "
        "absolute path, or a name on the PATH in `environment`. Empty: `tunerPython`, else `python3` of that PATH, "
        "else the daemon's.",
    )
    code: str = Field(
        default="",
        description="SHA-256 of code that was sent. Relative paths in the config start there, not at `directory`.",
    )
    debug: bool = Field(default=False, description="True: as if the config said `debug: true`.")
    secrets: dict[str, str] = Field(
        default={},
        repr=False,
        description="Values of secret fields, by reference (`${VARIABLE}`, `file:/path`). Others are "
        "looked up in `environment`, and in the daemon's files.",
    )
    endpoint: NewEndpoint | None = Field(default=None, description="A separate port; default: none.")
    provenance: Provenance | None = Field(
        default=None,
        repr=False,
        description="The caller's record of its code; default: the daemon records it.",
    )
    id: str = Field(
        default="",
        pattern=r"^([A-Za-z0-9_-]{1,32})?$",
        description="Id of the new experiment, which must be unused; empty: a new one is generated.",
    )


class Created(Wire):
    id: str = Field(description="Id of the new experiment.")
    warnings: list[ExperimentWarning] = Field(description="Warnings, as in `GET /experiments/{id}`.")


class _Opened(Sent):
    working_directory: str | None = Field(
        default=None,
        pattern="^/",
        description="Absolute parent of the experiment's folder, if the daemon does not know it yet.",
    )
    endpoint: NewEndpoint | None = Field(
        default=None, description="A separate port; default: its current one, or none."
    )


class View(_Opened):
    """A request to open an experiment for reading."""

    id: str = Field(description="Id of the experiment.", pattern=r"^[A-Za-z0-9_-]{1,32}$")


class Resume(_Opened):
    """A request to continue an experiment."""

    debug: bool = Field(default=False, description="True: sets `debug`. Only for a stopped experiment.")
    secrets: dict[str, str] = Field(
        default={}, repr=False, description="New values of secret fields, by reference; others are kept."
    )


class NewSecrets(Sent):
    """New values of secrets."""

    secrets: dict[str, str] = Field(
        repr=False, description="New values of secret fields, by reference; others are kept."
    )
    environment: dict[str, str] | None = Field(
        default=None,
        repr=False,
        description="Environment of the tuner and of trials on the manager's machine, for an experiment whose private "
        "file is missing; others keep their environment. Default: the daemon's own.",
    )


class StoppedExperiments(Wire):
    stopped: list[str] = Field(description="Ids of the experiments that this request stopped.")


_Count = Annotated[Any, WithJsonSchema({"type": "integer", "minimum": 1})]
_Limit = Annotated[Any, WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]})]
_Duration = Annotated[
    Any, WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}], "examples": ["2h", 600]})
]


class ExperimentChange(Sent):
    """A change of an experiment. Only given fields change; the rules of the experiment file apply."""

    model_config = ConfigDict(extra="allow")  # `config` refuses other fields, and names those that can change

    trial_concurrency: _Count = Field(default=None, description="Maximum number of trials at a time.")
    max_trial_number: _Limit = Field(default=None, description="Maximum number of trials; null: unlimited.")
    max_experiment_duration: _Duration = Field(
        default=None, description="Maximum active time: seconds, or text such as `2h`; null: unlimited."
    )
    max_trial_duration: _Duration = Field(
        default=None, description="Maximum time of a trial: seconds, or text such as `10m`; null: unlimited."
    )
    search_space: Annotated[Any, WithJsonSchema({"type": "object"})] = Field(
        default=None, description="The new search space, which the tuner must accept."
    )
    experiment_name: Annotated[Any, WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "null"}]})] = Field(
        default=None, description="The new name; null: none. Without other fields, also for a stopped experiment."
    )
    notes: Annotated[Any, WithJsonSchema({"type": "string", "maxLength": MOST_NOTES})] = Field(
        default=None, description="New notes. Also for a stopped experiment."
    )
    tags: Annotated[Any, WithJsonSchema({"type": "array", "items": {"type": "string", "maxLength": LONGEST_TAG}})] = (
        Field(default=None, description="New tags. Also for a stopped experiment.")
    )
    archived: Annotated[Any, WithJsonSchema({"type": "boolean"})] = Field(
        default=None, description="Whether lists hide it by default. Also for a stopped experiment."
    )
    training_service: Annotated[
        Any, WithJsonSchema({"anyOf": [{"type": "object"}, {"type": "array", "items": {"type": "object"}}]})
    ] = Field(
        default=None,
        description="The new training services: one section, or a list of them, as in the experiment file. A section "
        "refers to the service of its `name`, or of its position. Services without a section are removed: they start "
        "no new trials. Omitted fields get their defaults if they may change, else they keep their values.",
    )
    secrets: dict[str, str] = Field(
        default={}, repr=False, description="Values of secret fields of `trainingService`, by reference."
    )
    directory: str = Field(
        default="",
        description="Absolute base folder of relative paths in `trainingService`.",
        pattern=r"^(/[^\x00]*)?$",
    )
    now: bool = Field(
        default=False, description="True: cancels trials on removed services. False: they run to their end."
    )


class ExportedResult(Wire):
    """A successful trial, in the format of NNI's export and `nnictl experiment export`."""

    parameter: JsonValue = Field(description="Its parameters.")
    value: str = Field(description="Its final result as reported: JSON text, which may contain NaN and Infinity.")
    trial_job_id: str = Field(description="Its id.")
    pareto: bool | None = Field(default=None, description="Whether it is in the Pareto set; only with `objectives`.")
    intermediate: list[str] | None = Field(
        default=None, description="With `intermediate=true`: all its results as JSON texts, the final one last."
    )


class ImportedResult(Sent):
    """A result for the tuner. NNI's exports can be sent unchanged, and are stored unchanged."""

    model_config = ConfigDict(extra="allow")  # exports also contain ids

    parameter: dict[str, JsonValue] = Field(description="Parameter names and values.")
    value: JsonValue = Field(description="The final result: a number, or an object with the number as `default`.")
