"""Experiments as the API shows them, and what may be sent about them."""

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
    "Status in NNI's words: RUNNING; NO_MORE_TRIAL and TUNER_NO_MORE_TRIAL (nothing new starts, trials still run); "
    "DONE; ERROR (cannot go on, `resume` tries again); STOPPING; STOPPED (`resume` opens it again); "
    "VIEWED (open for reading only)."
)


#: Of what lists show.
_NOT_KNOWN = " null: not known, of a closed one that NNI or an earlier version made."


class Hold(Wire):
    """Why no new trial starts although the experiment is not over. Running trials go on."""

    code: HoldCode = Field(description="The kind of reason.")
    sentence: str = Field(description="What happened and what to do.")
    details: str = Field(description="Traceback or stack, or empty.")


class ExperimentWarning(Wire):
    """A fact that the user should know although nothing is refused and nothing waits."""

    code: str = Field(description="The kind, for programs.", examples=["TRIAL_PORT_MOVED"])
    message: str = Field(description="What is so and what to do about it; for a file with its line and field.")


class Best(Wire):
    """The best succeeded trial so far, by the tuner's `optimize_mode`."""

    trial_id: str = Field(description="Its id.")
    value: float = Field(description="Its final result's number; infinite ones are never the best.")
    parameters: JsonValue = Field(description="Its parameters, as it got them.")


class ParetoTrial(Wire):
    """A trial that none is better than in every one of the experiment's `objectives`."""

    trial_id: str = Field(description="Its id.")
    values: dict[str, float] = Field(description="Objective → its number in the trial's final result.")
    is_feasible: bool = Field(
        description="Whether it satisfies all `constraints`. While no trial does, the set is made of those that "
        "violate them least."
    )
    parameters: JsonValue = Field(description="Its parameters, as it got them.")


class CommonFailure(Wire):
    """What most of the trials that failed have in common: they have the same `failureKey`."""

    trials: int = Field(description="How many failed so.")
    trial_id: str = Field(description="The newest of them.")
    sentence: str = Field(description="How that one ended, with the line of its stderr that tells why.")


class NewEndpoint(Sent):
    """A port of its own for an experiment: its page and NNI's API at the root, as NNI serves them."""

    port: Annotated[int, Field(ge=0, le=65535)] | None = Field(
        default=None,
        description="TCP port; 0: any free one. null: none where the daemon's service shows the experiment, or nothing "
        "is to listen; else `firstPort`, or the next port that is free.",
    )
    first_port: Annotated[int, Field(ge=0, le=65535)] | None = Field(
        default=None,
        description="First TCP port to try without a `port`; 0: any free one. null: `port` in the daemon's settings.",
    )
    url_prefix: str = Field(default="", description="What stands before every path; empty: nothing.", max_length=400)


class ExperimentEndpoint(Wire):
    """The endpoint of an experiment: where its own page and NNI's API are served."""

    port: int = Field(description="TCP port.")
    url_prefix: str = Field(description="What stands before every path, without slashes at its ends; empty: nothing.")
    url: str = Field(description="Address of the page, `http://host:port` and the prefix; NNI's API is below it.")


class WaitingFor(Wire):
    """What keeps an experiment from making the progress it could; it passes without a person, or a person helps."""

    sentence: str = Field(description="What it waits for.", examples=["remote is away: no route to host"])
    since_ms: int | None = Field(description="Since when, milliseconds since the epoch; null: not known.")


class ExperimentSummary(Wire):
    """An experiment as lists show it."""

    id: str = Field(description="Id of the experiment.", examples=["k3v9x0qa"])
    name: str | None = Field(description="`experimentName` of its config; null without one.")
    platform: str = Field(description="Where its trials run, e.g. `local`; several are joined by comma.")
    status: ExperimentStatus = Field(description=_ONE_STATUS)
    hold: Hold | None = Field(description="Why nothing new starts; null when nothing is on hold, or it is stopped.")
    errors: list[str] = Field(description="Everything that keeps it from going on, a sentence each.")
    waits_for: WaitingFor | None = Field(
        description="What it waits for while it is open: a service that is away or on hold, jobs that are "
        "unreachable, or a place for its next trial while none runs; null: nothing, or not known."
    )
    created_ms: int = Field(description="When it was created, milliseconds since the epoch.")
    ended_ms: int | None = Field(description="When it became DONE, ERROR or STOPPED; null before.")
    ended_as: Literal["DONE"] | None = Field(
        description="DONE: it was stopped after it was done, so that its status is STOPPED; null: it is open, or was "
        "stopped before."
    )
    log_path: str = Field(description="Its folder on the daemon's machine: database, logs, trials.")
    endpoint: ExperimentEndpoint | None = Field(
        description="Its own port; null: it has none. `errors` says if it is not open."
    )
    counts: dict[TrialStatus, int] | None = Field(description=f"Trials by status; only those that occur.{_NOT_KNOWN}")
    trials_made: int | None = Field(description=f"How many trials there are, in whatever status.{_NOT_KNOWN}")
    max_trial_number: int | None = Field(description="How many trials may be made; null: no limit, or not known.")
    optimize_mode: OptimizeMode | None = Field(
        description=f"Which results are better, as its tuner understands its config.{_NOT_KNOWN}"
    )
    direction_note: str | None = Field(
        description="What decides that, where the experiment file does not state it, such as `default of TPE` or "
        f"`direction not set`; empty: the file states it.{_NOT_KNOWN}",
        examples=["default of TPE"],
    )
    best: Best | None = Field(
        description="The best trial; null before the first one succeeded with a finite number, with several "
        "`objectives`, and where `counts` is null."
    )
    objectives: dict[str, OptimizeMode] | None = Field(
        description="Of its config: key of final results → which are better; empty: the number, or its `default`."
        f"{_NOT_KNOWN}"
    )
    pareto_set: list[ParetoTrial] | None = Field(
        description="With `objectives`: the trials that are best, those with the best of the first objective first, at "
        f"most {MOST}; else empty.{_NOT_KNOWN}"
    )
    pareto_size: int | None = Field(description=f"How many trials are in the Pareto set.{_NOT_KNOWN}")
    common_failure: CommonFailure | None = Field(
        description="What most of the trials that failed have in common; null where none failed, or `counts` is null."
    )
    notes: str = Field(description="Text that people noted about it; empty: none.")
    tags: list[str] = Field(description="Words that people gave it, by which lists are filtered.", examples=[["paper"]])
    archived: bool = Field(description="Whether the page's list leaves it out unless asked for.")


class ExperimentState(ExperimentSummary):
    """Everything but the config: what events carry."""

    exec_duration_ms: int = Field(
        description="Time it was active, in milliseconds; time on hold and time when it is DONE do not count."
    )
    trial_concurrency: int = Field(description="How many trials may run at a time.")
    max_trial_number: int | None = Field(description="How many trials may be made; null: no limit.")
    max_experiment_duration: int | str | None = Field(
        description="Time it may be active, as in the config: seconds, or text such as `2h`; null: no limit."
    )
    max_trial_duration: int | str | None = Field(
        description="Time one trial may run, as in the config: seconds, or text such as `10m`; null: no limit."
    )
    counts: dict[TrialStatus, int] = Field(description="Trials by status; only those that occur.")
    trials_made: int = Field(description="How many trials there are, in whatever status.")
    no_more_trials: str = Field(
        description="Why no more trials are made: a limit that is reached, or the tuner; empty while they are."
    )
    optimize_mode: OptimizeMode = Field(
        description="Which results are better, greater or smaller ones, as its tuner understands its config."
    )
    direction_note: str = Field(
        description="What decides that, where the experiment file does not state it, such as `default of TPE` or "
        "`direction not set`; empty: the file states it."
    )
    best: Best | None = Field(
        description="The best trial; null before the first one succeeded with a finite number, and with several "
        "`objectives`."
    )
    objectives: dict[str, OptimizeMode] = Field(
        description="Of its config: key of final results → which are better; empty: the number, or its `default`."
    )
    pareto_set: list[ParetoTrial] = Field(
        description="With `objectives`: the trials that are best, those with the best of the first objective first, at "
        f"most {MOST}; else empty."
    )
    pareto_size: int = Field(description="How many trials are in the Pareto set.")
    common_failure: CommonFailure | None = Field(
        description="What most of the trials that failed have in common; null: none failed."
    )
    services: list[TrainingService] = Field(
        description="Where its trials run, in the order of the config; removed ones come last."
    )
    warnings: list[ExperimentWarning] = Field(
        description="What refuses nothing and should be known: of the experiment file, and of what is so now."
    )
    revision: int = Field(description="Grows with every change of config or status.")


class Experiment(ExperimentState):
    """Everything about one experiment but its trials."""

    config: dict[str, JsonValue] = Field(
        description="The config in canonical form: camelCase, absent fields left out, paths absolute. "
        "Secrets are masked with `******`, or are references to what holds them."
    )
    variables: int | None = Field(
        description="How many variables of its creator's environment are kept; null: it is closed, or they are "
        "not in its folder."
    )
    references: list[str] = Field(
        description="What its secret fields refer to outside the config: `${VARIABLE}`, `file:/path`."
    )


class ExperimentList(Wire):
    total: int = Field(description="How many experiments match, whatever `limit` and `offset`.")
    experiments: list[ExperimentSummary] = Field(description="The page that was asked for.")


class NewExperiment(Wire):
    """An experiment file together with what a command line knows about its caller."""

    config: str = Field(description="Text of the experiment file, YAML or JSON.")
    file: str = Field(default="", description="What messages call the file.")
    directory: str = Field(default="", description="Absolute folder that relative paths in the config start at.")
    environment: dict[str, str] | None = Field(
        default=None,
        description="What trials and tuner run with, as far as `callerEnvironment` keeps it; not given: the "
        "daemon's own environment.",
        repr=False,
    )
    interpreter: str = Field(
        default="",
        description="The Python that runs a user's tuner or assessor, over what `tunerPython` in the config says: an "
        "absolute path, or a name on the PATH in `environment`. Empty: `tunerPython`, else `python3` of that PATH, "
        "else the daemon's.",
    )
    code: str = Field(
        default="",
        description="SHA-256 of code that was sent: relative paths in the config start there, not at `directory`.",
    )
    debug: bool = Field(default=False, description="True: as if the config said `debug: true`.")
    secrets: dict[str, str] = Field(
        default={},
        repr=False,
        description="Values of what secret fields refer to, by reference (`${VARIABLE}`, `file:/path`); others are "
        "looked up in `environment`, and in the daemon's files.",
    )
    endpoint: NewEndpoint | None = Field(default=None, description="A port of its own; not given: none.")
    provenance: Provenance | None = Field(
        default=None,
        repr=False,
        description="What the caller recorded where its code is; not given: the daemon looks itself.",
    )
    id: str = Field(
        default="",
        pattern=r"^([A-Za-z0-9_-]{1,32})?$",
        description="Id of the new experiment, which no other has; empty: a new one is made up.",
    )


class Created(Wire):
    id: str = Field(description="Id of the new experiment.")
    warnings: list[ExperimentWarning] = Field(
        description="As of `GET /experiments/{id}`; empty when there is nothing to warn of."
    )


class _Opened(Sent):
    working_directory: str | None = Field(
        default=None,
        pattern="^/",
        description="Absolute folder that holds the experiment's folder, when the daemon does not know it yet.",
    )
    endpoint: NewEndpoint | None = Field(
        default=None, description="A port of its own; not given: the one it has, or none."
    )


class View(_Opened):
    """An experiment to be opened for reading only."""

    id: str = Field(description="Id of the experiment.", pattern=r"^[A-Za-z0-9_-]{1,32}$")


class Resume(_Opened):
    """A request that an experiment goes on."""

    debug: bool = Field(default=False, description="True: `debug` is switched on. Only for one that is stopped.")
    secrets: dict[str, str] = Field(
        default={}, repr=False, description="New values of what secret fields refer to, by reference; others stay."
    )


class NewSecrets(Sent):
    """Secrets given anew."""

    secrets: dict[str, str] = Field(
        repr=False, description="New values of what secret fields refer to, by reference; others stay."
    )
    environment: dict[str, str] | None = Field(
        default=None,
        repr=False,
        description="What trials on the manager's machine and the tuner run with, for an experiment whose private file "
        "is missing; one that has an environment keeps it. Not given: the daemon's own.",
    )


class StoppedExperiments(Wire):
    stopped: list[str] = Field(description="Ids of the experiments that were open and are now stopped.")


_Count = Annotated[Any, WithJsonSchema({"type": "integer", "minimum": 1})]
_Limit = Annotated[Any, WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]})]
_Duration = Annotated[
    Any, WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}], "examples": ["2h", 600]})
]


class ExperimentChange(Sent):
    """A change of an experiment: only given fields change. Values are judged by the rules of the experiment file."""

    model_config = ConfigDict(extra="allow")  # `config` refuses others, and says which can change

    trial_concurrency: _Count = Field(default=None, description="How many trials may run at a time.")
    max_trial_number: _Limit = Field(default=None, description="How many trials may be made; null: no limit.")
    max_experiment_duration: _Duration = Field(
        default=None, description="Time it may be active: seconds, or text such as `2h`; null: no limit."
    )
    max_trial_duration: _Duration = Field(
        default=None, description="Time one trial may run: seconds, or text such as `10m`; null: no limit."
    )
    search_space: Annotated[Any, WithJsonSchema({"type": "object"})] = Field(
        default=None, description="The new search space; the tuner must be able to change to it."
    )
    experiment_name: Annotated[Any, WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "null"}]})] = Field(
        default=None, description="The new name; null: none. Alone, also of a stopped one."
    )
    notes: Annotated[Any, WithJsonSchema({"type": "string", "maxLength": MOST_NOTES})] = Field(
        default=None, description="Text about it, in place of the one there is. Also of a stopped one."
    )
    tags: Annotated[Any, WithJsonSchema({"type": "array", "items": {"type": "string", "maxLength": LONGEST_TAG}})] = (
        Field(default=None, description="Its tags, in place of those there are. Also of a stopped one.")
    )
    archived: Annotated[Any, WithJsonSchema({"type": "boolean"})] = Field(
        default=None, description="Whether lists leave it out unless asked for. Also of a stopped one."
    )
    training_service: Annotated[
        Any, WithJsonSchema({"anyOf": [{"type": "object"}, {"type": "array", "items": {"type": "object"}}]})
    ] = Field(
        default=None,
        description="The training services it is to have from now on: one section, or a list of them, as in the "
        "experiment file. A section means the service of its `name`, or of its position where it has none; one that "
        "no section means is removed: it takes nothing new. Fields that may change are what the section says, others "
        "stay when they are left out.",
    )
    secrets: dict[str, str] = Field(
        default={}, repr=False, description="Values of what secret fields of `trainingService` refer to, by reference."
    )
    directory: str = Field(
        default="", description="Where relative paths in `trainingService` start; absolute.", pattern=r"^(/[^\x00]*)?$"
    )
    now: bool = Field(
        default=False, description="Trials on services that are removed are cancelled; otherwise they run to their end."
    )


class ExportedResult(Wire):
    """A trial that succeeded, as NNI's export and `nnictl experiment export` have it."""

    parameter: JsonValue = Field(description="Its parameters, as it got them.")
    value: str = Field(description="Its final result as reported: JSON text, in which NaN and Infinity may stand.")
    trial_job_id: str = Field(description="Its id.")
    pareto: bool | None = Field(
        default=None, description="Whether it is in the Pareto set; only of an experiment with `objectives`."
    )
    intermediate: list[str] | None = Field(
        default=None, description="With `intermediate=true`: all that it reported, the final result last; JSON texts."
    )


class ImportedResult(Sent):
    """A result from elsewhere, for the tuner. What NNI's export writes can be sent as it is, and is kept so."""

    model_config = ConfigDict(extra="allow")  # exports hold ids as well

    parameter: dict[str, JsonValue] = Field(description="Parameter names and values.")
    value: JsonValue = Field(description="The final result: a number, or an object with the number as `default`.")
