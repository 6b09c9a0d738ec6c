"""What experiments need of their views: a port that is opened, closed with the experiment, and found again."""

from __future__ import annotations

from typing import Protocol

from nni_manager.domain.view import View, ViewWish


class ViewDoor(Protocol):
    """Built by `app`, which owns the sockets. An experiment has one view at most."""

    async def open(self, experiment_id: str, wish: ViewWish) -> View | None:
        """Opens a view at once, also of an experiment that is about to be made; one it has already is exchanged.

        None: nobody asked for a port, and the service shows the experiment, or nothing is to listen. Raises
        AlreadyOwned, naming who holds the port, Conflict or InvalidInput.
        """

    def restore(self, experiment_id: str, view: View) -> None:
        """Opens a recorded view as soon as it can be had; meanwhile `problem` says why it is not open."""

    async def close(self, experiment_id: str) -> None:
        """Closes the port and its connections, or gives up restoring it. Idempotent."""

    def url(self, view: View) -> str:
        """``http://host:port/prefix/``."""

    def problem(self, experiment_id: str) -> str:
        """Why a recorded view is not open; empty when all is well."""
