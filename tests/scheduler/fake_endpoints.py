"""A listener for endpoints that opens nothing, and remembers which would be open."""

from __future__ import annotations

from nni_manager.domain.endpoint import Endpoint, EndpointWish
from nni_manager.domain.errors import AlreadyOwned


class FakeEndpoints:
    def __init__(self) -> None:
        self.endpoints: dict[str, Endpoint] = {}
        self.restored: dict[str, Endpoint] = {}
        self.problems: dict[str, str] = {}
        #: Ports in use by another process.
        self.taken: set[int] = set()
        #: As when a service shows every experiment.
        self.has_service = False

    async def open(self, experiment_id: str, wish: EndpointWish) -> Endpoint | None:
        if self.has_service and not wish.is_explicit:
            return None
        if wish.port in self.taken:
            raise AlreadyOwned(f"port {wish.port} is in use by process 1 (init); choose another with --port")
        endpoint = Endpoint(port=wish.port or 8080, prefix=wish.prefix)
        self.endpoints[experiment_id] = endpoint
        return endpoint

    def restore(self, experiment_id: str, endpoint: Endpoint) -> None:
        self.endpoints[experiment_id] = self.restored[experiment_id] = endpoint

    async def close(self, experiment_id: str) -> None:
        self.endpoints.pop(experiment_id, None)

    def url(self, endpoint: Endpoint) -> str:
        return f"http://127.0.0.1:{endpoint.port}{endpoint.path}"

    def problem(self, experiment_id: str) -> str:
        return self.problems.get(experiment_id, "")
