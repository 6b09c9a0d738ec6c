"""Requests to open an experiment, a new one or one that exists; and the port that shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from nni_manager.domain.endpoint import Endpoint, EndpointWish
from nni_manager.domain.experiment import ExperimentSpec
from nni_manager.domain.ids import new_experiment_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A new experiment, and on whose behalf it runs."""

    spec: ExperimentSpec
    #: What the experiment is going to be called.
    id: str = field(default_factory=new_experiment_id)
    #: The caller's environment; trials and the tuner run with it.
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: The Python of a user's tuner and assessor; empty: the daemon's.
    interpreter: str = ""
    #: Reference → value, of the secrets that `spec` refers to.
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: None: no endpoint.
    endpoint: EndpointWish | None = None
    #: A folder of code that a client sent; `spec` names it, and the experiment gets a copy of its own. None: no such.
    sent_code: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopening:
    """How an experiment that exists is opened again."""

    #: None: the endpoint it has, if it has one.
    endpoint: EndpointWish | None = None
    #: The folder of the experiment, or the one that holds it, when the daemon is not to look where it knows one.
    directory: Path | None = None
    #: Switches `debug` on.
    debug: bool = False
    #: Reference → value, of secrets that are given anew.
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


class Endpoints(Protocol):
    """Built by `app`, which owns the sockets. An experiment has one endpoint at most."""

    async def open(self, experiment_id: str, wish: EndpointWish) -> Endpoint | None:
        """Opens an endpoint at once, also of an experiment that is about to be made; one it has already is exchanged.

        None: nobody asked for a port, and the service shows the experiment, or nothing is to listen. Raises
        AlreadyOwned, naming who holds the port, Conflict or InvalidInput.
        """

    def restore(self, experiment_id: str, endpoint: Endpoint) -> None:
        """Opens a recorded endpoint as soon as it can be had; meanwhile `problem` says why it is not open."""

    async def close(self, experiment_id: str) -> None:
        """Closes the port and its connections, or gives up restoring it. Idempotent."""

    def url(self, endpoint: Endpoint) -> str:
        """The address of an endpoint, ``http://host:port/prefix/``."""

    def problem(self, experiment_id: str) -> str:
        """Why a recorded endpoint is not open; empty when all is well."""
