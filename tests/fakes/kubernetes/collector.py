"""Garbage collection by owner references, and the end of namespaces."""

from __future__ import annotations

import asyncio

from tests.fakes.kubernetes import refusals
from tests.fakes.kubernetes.kinds import EVENTS
from tests.fakes.kubernetes.store import Change, Object
from tests.fakes.kubernetes.verbs import FOREGROUND, ORPHAN, Verbs


class Collector:
    """Runs shortly after deletions, like the real one."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs
        self._wake = asyncio.Event()
        self._wake.set()
        verbs.store.listen(self._heard)

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(0.01)
            self.collect()

    def _heard(self, change: Change) -> None:
        owned_newly = (
            change.after is not None and change.before is None and "ownerReferences" in change.after["metadata"]
        )
        ending = change.after is not None and "deletionTimestamp" in change.after["metadata"]
        if change.after is None or ending or owned_newly:
            self._wake.set()

    def collect(self) -> None:
        everything = [(key, obj) for key, obj in self._verbs.store.everything() if key != EVENTS.key]
        living = {obj["metadata"]["uid"]: (key, obj) for key, obj in everything}
        dependants: dict[str, list[tuple[str, Object]]] = {}
        for key, obj in everything:
            owners = obj["metadata"].get("ownerReferences") or []
            for owner in owners:
                dependants.setdefault(owner["uid"], []).append((key, obj))
            if owners and not any(owner["uid"] in living for owner in owners):
                self._delete(key, obj, "Background")
        for key, obj in everything:
            if "deletionTimestamp" in obj["metadata"]:
                self._finish(key, obj, dependants)

    def _finish(self, key: str, obj: Object, all_dependants: dict[str, list[tuple[str, Object]]]) -> None:
        dependants = all_dependants.get(obj["metadata"]["uid"], [])
        finalizers = obj["metadata"].get("finalizers") or []
        if key == "namespaces":
            self._empty(obj)
        elif ORPHAN in finalizers:
            for at, dependant in dependants:
                self._orphan(at, dependant, obj["metadata"]["uid"])
            self._drop_finalizer(key, obj, ORPHAN)
        elif FOREGROUND in finalizers:
            for at, dependant in dependants:
                is_owner = dependant["metadata"]["uid"] in all_dependants
                self._delete(at, dependant, "Foreground" if is_owner else "Background")
            if not any(self._blocks(at, each, obj["metadata"]["uid"]) for at, each in dependants):
                self._drop_finalizer(key, obj, FOREGROUND)

    def _blocks(self, key: str, dependant: Object, uid: str) -> bool:
        metadata = dependant["metadata"]
        if self._verbs.store.get(key, (metadata.get("namespace", ""), metadata["name"])) is None:
            return False
        return any(owner["uid"] == uid and owner.get("blockOwnerDeletion") for owner in metadata["ownerReferences"])

    def _empty(self, namespace: Object) -> None:
        name, left = namespace["metadata"]["name"], False
        for key, obj in list(self._verbs.store.everything()):
            if obj["metadata"].get("namespace") == name:
                left = True
                self._delete(key, obj, "Background")
        if not left:
            self._verbs.store.remove("namespaces", ("", name))
        else:
            self._wake.set()

    def _delete(self, key: str, obj: Object, policy: str) -> None:
        kind = self._verbs.kinds.by_key(key)
        metadata = obj["metadata"]
        if kind is None or "deletionTimestamp" in metadata:
            return
        preconditions = {"uid": metadata["uid"]}
        options = {"propagationPolicy": policy, "preconditions": preconditions}
        try:
            self._verbs.delete(kind, metadata.get("namespace", ""), metadata["name"], options)
        except refusals.Refused:  # changed or deleted in the meantime
            self._wake.set()

    def _orphan(self, key: str, obj: Object, uid: str) -> None:
        metadata = dict(obj["metadata"])
        left = [owner for owner in metadata.pop("ownerReferences") if owner["uid"] != uid]
        metadata |= {"ownerReferences": left} if left else {}
        address = (metadata.get("namespace", ""), metadata["name"])
        if self._verbs.store.get(key, address) is not None:
            self._verbs.store.put(key, address, {**obj, "metadata": metadata})

    def _drop_finalizer(self, key: str, obj: Object, finalizer: str) -> None:
        metadata = dict(obj["metadata"])
        metadata["finalizers"] = [each for each in metadata["finalizers"] if each != finalizer]
        address = (metadata.get("namespace", ""), metadata["name"])
        current = self._verbs.store.get(key, address)
        if current is None:
            return
        if metadata["finalizers"] or (key == "pods" and metadata.get("deletionGracePeriodSeconds")):
            self._verbs.store.put(key, address, {**current, "metadata": metadata})
        else:
            self._verbs.store.remove(key, address)
