"""Requests to create or reopen an experiment, and the interface of its endpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from nni_manager.domain.endpoint import Endpoint, EndpointWish
from nni_manager.domain.experiment import ExperimentSpec
from nni_manager.domain.ids import new_experiment_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A new experiment with its caller's environment."""

    spec: ExperimentSpec
    #: The new experiment's id.
    id: str = field(default_factory=new_experiment_id)
    #: Whether the caller chose the id; then its folder may contain the files that NNI's launcher creates first.
    is_id_chosen: bool = False
    #: The caller's environment; trials and the tuner run with it.
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: The Python of a user's tuner and assessor; empty: the daemon's.
    interpreter: str = ""
    #: ``maximize`` or ``minimize``, the default of the user's tuner class; empty: unknown.
    class_direction: str = ""
    #: Reference → value, of the secrets that `spec` refers to.
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Results of other experiments for the tuner, one list of {parameter, value} for each.
    imported: Sequence[Sequence[Mapping[str, object]]] = ()
    #: None: no endpoint.
    endpoint: EndpointWish | None = None
    #: The caller's record of the code, as in REST; None: the daemon collects it.
    provenance: Mapping[str, object] | None = field(default=None, repr=False)
    #: Path and digest of the experiment file, as in the provenance record; empty: it is not on this machine.
    file_record: Mapping[str, str] = field(default_factory=dict)
    #: Folder of uploaded code, named in `spec`, which the experiment copies. None: none was uploaded.
    sent_code: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopening:
    """Options for opening an existing experiment."""

    #: None: keep the present one, if any.
    endpoint: EndpointWish | None = None
    #: The experiment's folder or its parent; None: the listed folder.
    directory: Path | None = None
    #: Switches `debug` on.
    debug: bool = False
    #: Reference → value, of renewed secrets.
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


class Endpoints(Protocol):
    """Built by `app`, which owns the sockets. An experiment has at most one endpoint."""

    async def open(self, experiment_id: str, wish: EndpointWish) -> Endpoint | None:
        """Opens an endpoint, also for an experiment about to be created; replaces a present one.

        None: no port was requested, so the daemon's page shows the experiment. Raises AlreadyOwned, naming the holder
        of the port, Conflict or InvalidInput.
        """

    def restore(self, experiment_id: str, endpoint: Endpoint) -> None:
        """Opens a stored endpoint, with retries; until then `problem` has the reason."""

    async def close(self, experiment_id: str) -> None:
        """Closes the port and its connections, or stops restoring it. Idempotent."""

    def url(self, endpoint: Endpoint) -> str:
        """The address of an endpoint, ``http://host:port/prefix/``."""

    def problem(self, experiment_id: str) -> str:
        """Why a stored endpoint is not open; empty: no problem."""
