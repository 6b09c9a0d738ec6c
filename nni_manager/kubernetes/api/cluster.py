"""A namespace of a cluster, shared by the daemon: a client, and one informer per kind of object.

Also a kind of job: its place in the API, how its status is read, and how a job is ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from nni_manager.domain.attempt import Observation
from nni_manager.domain.errors import BadCredentials, PlatformUnavailable
from nni_manager.kubernetes.api.access import Access
from nni_manager.kubernetes.api.client import JSON, MERGE_PATCH, Client, Object, Query, Refusal, connect
from nni_manager.kubernetes.api.informer import Informer
from nni_manager.kubernetes.api.names import EVENTS, EXPERIMENT, KUEUE, PODS, SECRETS, WORKLOAD_JOB, Resource
from nni_manager.platform_kit.connections import Connection

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Maximum number of concurrent submissions.
_SUBMISSIONS = 8
_RIGHTS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class Cluster(Connection):
    """A namespace of a cluster. A credential is an `Access` as text: it names files, and is not secret."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self._access: Access | None = None
        self._client: Client | None = None
        #: The client from before credentials were last read.
        self._retired: Client | None = None
        self._connecting = asyncio.Lock()
        self._informers: dict[Resource, Informer] = {}
        #: The server refused a call, also with credentials that were just read; open watches do not show that.
        self.refusal: BadCredentials | None = None
        #: Held during a submission: calls that end jobs must not wait behind calls that start them.
        self.submitting = asyncio.Semaphore(_SUBMISSIONS)

    @property
    def namespace(self) -> str:
        assert self._access is not None, "used after a lease was admitted"
        return self._access.namespace

    async def close(self) -> None:
        for informer in self._informers.values():
            await informer.stop()
        self._informers.clear()
        for client in (self._client, self._retired):
            if client is not None:
                await client.close()
        self._client = self._retired = None

    async def check(self, credential: str) -> None:
        access = Access.from_text(credential)
        client = await connect(access)
        try:
            await self._ask(client, access)
        finally:
            await client.close()

    async def _ask(self, client: Client, access: Access) -> None:
        try:
            await client.call("POST", _RIGHTS, body=review(access.namespace, "list", "", "pods"))
        except Refusal as refusal:
            raise _error(client.host, refusal) from None
        except PlatformUnavailable as error:
            self.note_down(str(error))
            raise
        self.note_up()

    async def use(self, credential: str) -> None:
        self._access = Access.from_text(credential)
        await self._connect()
        self._note_refusal(None)
        for informer in self._informers.values():
            informer.try_again()

    async def _connect(self) -> None:
        """Replaces the client if the credentials have changed. Calls of the previous client continue; the one before
        that is closed."""
        assert self._access is not None, "set by `use`"
        made = await connect(self._access)
        if self._client is not None and self._client.fingerprint == made.fingerprint:
            return await made.close()
        retired, self._retired, self._client = self._retired, self._client, made
        if retired is not None:
            await retired.close()

    async def client(self) -> Client:
        assert self._client is not None, "made by `use`"
        return self._client

    # Calls

    async def call(
        self, method: str, path: str, *, query: Query = (), body: object = None, content_type: str = JSON
    ) -> Object:
        """The object in a call's answer, like `Client.call`, with a retry if credentials have expired.

        Raises BadCredentials, too.
        """
        try:
            return await self.renewing(
                lambda client: client.call(method, path, query=query, body=body, content_type=content_type)
            )
        except Refusal as refusal:
            if refusal.status != 401:
                raise
            raise _error((await self.client()).host, refusal) from None

    async def renewing(self, ask: Callable[[Client], Awaitable[T]]) -> T:
        """The answer of `ask`, which is repeated if the credential had expired. Raises as `ask`."""
        client = await self.client()
        try:
            answer = await ask(client)
        except Refusal as refusal:
            if refusal.status != 401:
                raise
            answer = await self._ask_renewed(client, ask)
        self._note_refusal(None)
        return answer

    async def _ask_renewed(self, used: Client, ask: Callable[[Client], Awaitable[T]]) -> T:
        try:
            await self.renew(used)
            return await ask(await self.client())
        except BadCredentials as error:
            self._note_refusal(error)
            raise
        except Refusal as refusal:
            if refusal.status == 401:
                self._note_refusal(_refused(used.host, refusal))
            raise

    def _note_refusal(self, refusal: BadCredentials | None) -> None:
        if (refusal is None) != (self.refusal is None):
            self.refusal = refusal
            self._note_health()

    async def renew(self, used: Client) -> None:
        """Reads credentials again after the server refused those of this client. Raises BadCredentials."""
        async with self._connecting:
            if self._client is used:
                log.info("connection %s: the credential has expired; reading it again", self.key)
                await self._connect()

    async def create(self, resource: Resource, body: Object, query: Query = ()) -> Object:
        return await self.call("POST", resource.path(self.namespace), body=body, query=query)

    async def get(self, path: str, query: Query = ()) -> Object | None:
        """The object; None: it does not exist, or the cluster lacks its kind. Raises as `call`."""
        try:
            return await self.call("GET", path, query=query)
        except Refusal as refusal:
            if refusal.status == 404:
                return None
            raise

    async def find(self, resource: Resource, name: str) -> Object | None:
        return await self.get(resource.path(self.namespace, name))

    async def list(self, resource: Resource, selector: str) -> list[Object]:
        """The objects with this label selector; none if the cluster lacks the kind."""
        answer = await self.get(resource.path(self.namespace), [("labelSelector", selector)]) or {}
        items: list[Object] = answer.get("items") or []
        return items

    async def fields(self, resource: Resource, model: str) -> frozenset[str]:
        """The fields of a model in the server's own description of the kind's group; empty: there is none.

        `model`: its full name, such as ``io.k8s.api.batch.v1.JobSpec``. Raises Refusal and PlatformUnavailable.
        """
        try:
            told = await self.get(f"/openapi/v3/apis/{resource.group}/{resource.version}") or {}
        except Refusal as refusal:
            if refusal.status != 403:
                raise
            told = {}
        schemas = (told.get("components") or {}).get("schemas") or {}
        return frozenset((schemas.get(model) or {}).get("properties") or ())

    async def delete(self, resource: Resource, name: str, *, uid: str = "") -> Object:
        """Deletes an object and its dependents. Ignores a missing one, and a different one of that name.

        Returns the server's answer: the object if a finalizer keeps it; empty without an answer.
        """
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid:
            body["preconditions"] = {"uid": uid}
        try:
            return await self.call("DELETE", resource.path(self.namespace, name), body=body)
        except Refusal as refusal:
            if refusal.status not in (404, 409):
                raise
        return {}

    async def may(self, verb: str, resource: Resource, subresource: str = "") -> bool:
        """Whether the server says that we have a right. Raises Refusal and PlatformUnavailable."""
        body = review(self.namespace, verb, resource.group, resource.plural, subresource)
        answer = await self.call("POST", _RIGHTS, body=body)
        return bool((answer.get("status") or {}).get("allowed"))

    async def may_exec(self) -> bool:
        """Whether we may run commands in pods, and read Secrets, which hold the parameters.

        Commands use a websocket, which begins as a GET; Kubernetes 1.35 and later also check the right to create.
        """
        return (
            await self.may("get", PODS, "exec")
            and await self.may("create", PODS, "exec")
            and await self.may("get", SECRETS)
        )

    async def account_may(self, account: str, verb: str, resource: Resource) -> bool | None:
        """Whether a service account of the namespace has a right; None: unknown. Raises PlatformUnavailable."""
        asked = review(self.namespace, verb, resource.group, resource.plural)["spec"]
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{self.namespace}", "system:authenticated"]
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "LocalSubjectAccessReview",
            "metadata": {"namespace": self.namespace},
            "spec": {**asked, "user": f"system:serviceaccount:{self.namespace}:{account}", "groups": groups},
        }
        path = f"/apis/authorization.k8s.io/v1/namespaces/{self.namespace}/localsubjectaccessreviews"
        try:
            answer = await self.call("POST", path, body=body)
        except Refusal:
            return None
        return bool((answer.get("status") or {}).get("allowed"))

    # Informers

    def informer(self, resource: Resource) -> Informer:
        """The informer of a kind of object, started on first use; it lives as long as the connection."""
        informer = self._informers.get(resource)
        if informer is None:
            label = WORKLOAD_JOB if resource.group == KUEUE else EXPERIMENT
            query = [("fieldSelector", "type!=Normal")] if resource == EVENTS else [("labelSelector", label)]
            informer = Informer(
                resource, self.namespace, self.client, query=query, on_trouble=self._on_trouble, renew=self.renew
            )
            self._informers[resource] = informer
            informer.start()
        return informer

    def _on_trouble(self, informer: Informer) -> None:
        self._note_health()

    def _note_health(self) -> None:
        needed = [one for one in self._informers.values() if one.resource != EVENTS and one.resource.group != KUEUE]
        asked = [one for one in needed if one.was_asked]
        troubles = [one for one in (self.refusal, *(informer.trouble for informer in asked)) if one is not None]
        if troubles:
            self.note_down(str(troubles[0]))
        else:
            self.note_up()


def review(namespace: str, verb: str, group: str, plural: str, subresource: str = "") -> Object:
    """The object SelfSubjectAccessReview, which asks whether we have a right."""
    attributes = {"namespace": namespace, "verb": verb, "group": group, "resource": plural}
    if subresource:
        attributes["subresource"] = subresource
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }


def _refused(host: str, refusal: Refusal) -> BadCredentials:
    return BadCredentials(
        f"{host} refuses the credentials of the kubeconfig ({refusal.status} {refusal.reason}); log in again, or "
        "set another kubeconfig or context"
    )


def _error(host: str, refusal: Refusal) -> Exception:
    if refusal.status in (401, 403):
        return _refused(host, refusal)
    return PlatformUnavailable(f"{host}: {refusal}", refused=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """An operator's kind of job."""

    group: str
    plural: str
    kind: str
    #: Name of the container that runs the trial.
    container: str
    #: State, times and the operator's own reason, read from an object of the kind. Pure.
    read: Callable[[Object], Observation]
    #: Version of the API; empty: the cluster's.
    version: str = ""
    #: Patch that ends an object; None: it is deleted.
    stop: Object | None = None
    #: A failed job keeps its failed pods, so a failed job without them lost a pod to the cluster.
    keeps_failed_pods: bool = False
    #: The section's field with a container's memory.
    memory_field: str = "trialMemorySize"
    #: The operator that serves the kind, and where to get it.
    operator: str
    #: The oldest version of Kubernetes with all features that we use: CustomResourceDefinitions as
    #: `apiextensions.k8s.io/v1`.
    oldest: tuple[int, int] = (1, 16)

    async def find(self, cluster: Cluster) -> Resource | None:
        """The kind, in the wanted version if served, or else in the cluster's preferred one; None: not served. Raises
        Refusal."""
        group = await cluster.get(f"/apis/{self.group}") or {}
        served = [str(one["version"]) for one in group.get("versions") or ()]
        preferred = str((group.get("preferredVersion") or {}).get("version") or "")
        for version in dict.fromkeys([self.version, preferred, *served]):
            if version in served and await self._serves(cluster, version):
                return Resource(self.group, version, self.plural, self.kind)
        return None

    async def _serves(self, cluster: Cluster, version: str) -> bool:
        answer = await cluster.call("GET", f"/apis/{self.group}/{version}")
        return any(one.get("name") == self.plural for one in answer.get("resources") or ())

    def missing(self) -> str:
        return f"the cluster has no kind {self.kind} ({self.plural}.{self.group}); install {self.operator}"

    async def end(self, cluster: Cluster, resource: Resource, name: str, uid: str) -> Object:
        """Ends a job; ignores a missing one. Returns the server's answer, as `Cluster.delete`. Raises Refusal."""
        if self.stop is None:
            return await cluster.delete(resource, name, uid=uid)
        try:
            return await cluster.call(
                "PATCH", resource.path(cluster.namespace, name), body=self.stop, content_type=MERGE_PATCH
            )
        except Refusal as refusal:
            if refusal.status not in (404, 409):
                raise
        return {}
