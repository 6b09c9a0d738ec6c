"""Create, read, update, patch and delete, with the rules of an API server; controllers use them, too."""

from __future__ import annotations

import logging
import uuid
from typing import Any

from tests.fakes.kubernetes import admission, changes, defaults, patches, pod_admission, quotas, refusals, selectors
from tests.fakes.kubernetes.jobs import kind as jobs
from tests.fakes.kubernetes.kinds import DEFINITIONS, EVENTS, JOBS, Kind, Kinds, of_definition
from tests.fakes.kubernetes.store import Change, Object, Store
from tests.fakes.kubernetes.webhooks import Webhooks

log = logging.getLogger(__name__)
#: Members of metadata that only the server sets.
_SERVER_SET = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")
FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"


class Verbs:
    """Operations on objects."""

    def __init__(self, store: Store, kinds: Kinds) -> None:
        self.store, self.kinds = store, kinds
        #: "prune" as a real server, or "refuse": 422 on unknown fields.
        self.unknown_fields = "prune"
        self.webhooks = Webhooks()
        #: Version of the server, on which the fields of Jobs depend.
        self.minor_version = 32
        #: Names of written events; repeated ones are counted.
        self._told: dict[tuple[str, str, str, str], str] = {}
        #: Names of pruned fields, for the answer's warnings.
        self.warnings: list[str] = []
        for definition in store.all(DEFINITIONS.key):
            self._serve(definition)
        store.listen(self._serve_definitions)

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        found = self.store.get(kind.key, (namespace, name))
        if found is None:
            raise refusals.not_found(kind.plural, kind.group, name)
        return found

    def find(self, kind: Kind, namespace: str, name: str) -> Object | None:
        return self.store.get(kind.key, (namespace, name))

    def all(self, kind: Kind, namespace: str | None = None, labels: str = "", fields: str = "") -> list[Object]:
        has_labels, has_fields = selectors.labels(labels), selectors.fields(fields, kind.key)
        return [each for each in self.store.all(kind.key, namespace) if has_labels(each) and has_fields(each)]

    def create(self, kind: Kind, namespace: str, given: Object, dry_run: bool = False, strict: bool = False) -> Object:
        obj = self._read(kind, namespace, given, strict)
        metadata = obj["metadata"]
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = defaults.generated_name(metadata["generateName"])
        self._require_namespace(kind, namespace)
        if metadata.get("resourceVersion"):
            raise refusals.bad_request("resourceVersion should not be set on objects to be created")
        for name in _SERVER_SET:
            metadata.pop(name, None)
        if kind.has_status:
            obj.pop("status", None)
        obj = self.webhooks.mutated(kind, defaults.filled(kind, obj))
        obj["metadata"].update(uid=str(uuid.uuid4()), creationTimestamp=defaults.now())
        if kind.namespaced:
            obj["metadata"]["namespace"] = namespace
        if kind.custom:
            obj["metadata"]["generation"] = 1
        elif kind.key == JOBS.key:
            obj = jobs.prepared(obj, jobs.disabled(self.minor_version))
        admission.require_valid(kind, obj)
        address = (namespace, obj["metadata"]["name"])
        if self.store.get(kind.key, address) is not None:
            raise refusals.already_exists(kind.plural, kind.group, address[1])
        self.webhooks.require_admitted(kind)
        pod_admission.require_admitted(self.store, kind, obj)
        quotas.require_room(self.store, kind, obj)
        if dry_run:
            return obj
        made = self.store.put(kind.key, address, obj)
        if kind.key == "namespaces":
            self._make_account(made["metadata"]["name"])
        return made

    def _make_account(self, namespace: str) -> None:
        """Create the default service account of a new namespace, like its controller."""
        accounts = self.kinds.by_key("serviceaccounts")
        assert accounts is not None
        self.create(
            accounts, namespace, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        )

    def update(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        given: Object,
        subresource: str = "",
        dry_run: bool = False,
        strict: bool = False,
    ) -> Object:
        """PUT: the whole object, or its status."""
        current = self.get(kind, namespace, name)
        obj = self._read(kind, namespace, given, strict)
        metadata = obj["metadata"]
        if metadata.get("name") != name:
            raise refusals.bad_request(
                f"the name of the object ({metadata.get('name')}) does not match the name on the URL ({name})"
            )
        version = metadata.get("resourceVersion")
        if kind.custom and not version:
            told = "Invalid value: 0x0: must be specified for an update"
            raise refusals.invalid(
                kind.kind, kind.group, name, [("metadata.resourceVersion", "FieldValueInvalid", told)]
            )
        if version and version != current["metadata"]["resourceVersion"]:
            raise refusals.conflict(kind.plural, kind.group, name)
        if metadata.get("uid", current["metadata"]["uid"]) != current["metadata"]["uid"]:
            why = f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: "
            raise refusals.conflict(kind.plural, kind.group, name, why + current["metadata"]["uid"])
        return self._replace(kind, current, obj, subresource, dry_run)

    def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: Any,
        how: str,
        subresource: str = "",
        dry_run: bool = False,
        strict: bool = False,
    ) -> Object:
        current = self.store.get(kind.key, (namespace, name))
        if how in patches.APPLY:
            return self._apply(kind, namespace, name, body, current, subresource, strict)
        if current is None:
            raise refusals.not_found(kind.plural, kind.group, name)
        if how == patches.JSON_PATCH:
            changed = patches.json_patched(current, body)
        elif how == patches.MERGE:
            changed = patches.merged(current, body)
        elif how == patches.STRATEGIC and not kind.custom:
            changed = patches.strategically_merged(current, body)
        else:
            told = "the body of the request was in an unknown format - accepted media types include: " + ", ".join(
                [patches.JSON_PATCH, patches.MERGE, patches.APPLY[0]]
            )
            raise refusals.Refused(415, "UnsupportedMediaType", told)
        return self.update(kind, namespace, name, changed, subresource, dry_run, strict)

    def _apply(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: Object,
        current: Object | None,
        subresource: str,
        strict: bool,
    ) -> Object:
        """Server-side apply for one manager: fields of other managers are not tracked."""
        if body.get("metadata", {}).get("name", name) != name:
            raise refusals.bad_request("metadata.name does not match the name on the URL")
        if current is None:
            return self.create(
                kind, namespace, {**body, "metadata": {**body.get("metadata", {}), "name": name}}, strict=strict
            )
        merge = patches.merged if kind.custom else patches.strategically_merged
        return self.update(kind, namespace, name, merge(current, body), subresource, strict=strict)

    def set_status(self, kind: Kind, namespace: str, name: str, status: Object) -> Object | None:
        """Update the status for a controller; None: the object does not exist."""
        current = self.find(kind, namespace, name)
        if current is None:
            return None
        return self._replace(kind, current, {**current, "status": status}, "status" if kind.has_status else "", False)

    def delete(
        self, kind: Kind, namespace: str, name: str, options: dict[str, Any] | None = None
    ) -> tuple[Object, bool]:
        """The current object, and whether it is deleted."""
        options = options or {}
        current = self.get(kind, namespace, name)
        changes.require_preconditions(kind, current, options.get("preconditions") or {})
        if options.get("dryRun"):
            return current, True
        metadata = dict(current["metadata"])
        finalizers = list(metadata.get("finalizers") or [])
        orphans = options.get("orphanDependents", kind.key == JOBS.key)
        policy = options.get("propagationPolicy") or ("Orphan" if orphans else "Background")
        added = {"Foreground": FOREGROUND, "Orphan": ORPHAN}.get(policy)
        if added and added not in finalizers:
            finalizers.append(added)
        grace = self._grace(kind, current, options)
        if kind.key == "namespaces":
            return self._terminate_namespace(current), False
        if not finalizers and grace == 0:
            return self.store.remove(kind.key, (namespace, name)), True
        if "deletionTimestamp" not in metadata:
            metadata.update(deletionTimestamp=defaults.now(grace), deletionGracePeriodSeconds=grace)
        elif grace < metadata.get("deletionGracePeriodSeconds", grace):
            metadata.update(deletionTimestamp=defaults.now(grace), deletionGracePeriodSeconds=grace)
        if finalizers:
            metadata["finalizers"] = finalizers
        if "generation" in metadata:
            metadata["generation"] += 1
        changed = {**current, "metadata": metadata}
        return (self.store.put(kind.key, (namespace, name), changed) if changed != current else current), False

    def remove_now(self, kind: Kind, namespace: str, name: str) -> None:
        """Remove an object at once, for a kubelet or at the end of a namespace."""
        if self.find(kind, namespace, name) is not None:
            self.store.remove(kind.key, (namespace, name))

    def event(self, about: Object, reason: str, message: str, kind: str = "Normal", source: str = "kubelet") -> None:
        """Write an Event about an object; repeated ones are counted."""
        metadata = about["metadata"]
        namespace = metadata.get("namespace") or "default"
        same = (namespace, metadata["uid"], reason, message)
        old = self.store.get(EVENTS.key, (namespace, self._told.get(same, "")))
        if old is not None:
            counted = {**old, "count": old["count"] + 1, "lastTimestamp": defaults.now()}
            self.store.put(EVENTS.key, (namespace, old["metadata"]["name"]), counted)
            return
        known = [name for name in ("name", "namespace", "uid", "resourceVersion") if name in metadata]
        involved = {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            **{name: metadata[name] for name in known},
        }
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{metadata['name']}.{uuid.uuid4().hex[:16]}"},
            "involvedObject": involved,
            "reason": reason,
            "message": message,
            "type": kind,
            "count": 1,
            "firstTimestamp": defaults.now(),
            "lastTimestamp": defaults.now(),
            "source": {"component": source},
            "reportingComponent": source,
            "reportingInstance": "",
        }
        try:
            self._told[same] = self.create(EVENTS, namespace, body)["metadata"]["name"]
        except refusals.Refused as refused:  # the namespace is being deleted
            log.info("event %s about %s was not written: %s", reason, metadata["name"], refused)

    def _read(self, kind: Kind, namespace: str, given: Object, strict: bool) -> Object:
        if not isinstance(given, dict):
            raise refusals.bad_request("the object provided is unrecognized (must be of type Object)")
        api_version, name = given.get("apiVersion") or kind.api_version, given.get("kind") or kind.kind
        if (api_version, name) != (kind.api_version, kind.kind):
            raise refusals.bad_request(
                f"{name} in version {api_version!r} cannot be handled as a {kind.kind} in version {kind.api_version!r}"
            )
        metadata = dict(given.get("metadata") or {})
        metadata.pop("managedFields", None)
        if kind.namespaced and metadata.get("namespace", namespace) != namespace:
            raise refusals.bad_request(
                f"the namespace of the provided object does not match the namespace sent on the request: "
                f"{metadata['namespace']} and {namespace}"
            )
        obj = {**given, "apiVersion": api_version, "kind": name, "metadata": metadata}
        obj, unknown = admission.shaped(kind, obj, self.unknown_fields == "refuse")
        if kind.key == JOBS.key:
            unknown += jobs.without(obj, jobs.unknown(self.minor_version))
        if unknown and strict:
            told = ", ".join(f'unknown field "{path}"' for path in unknown)
            raise refusals.bad_request(
                f"{kind.kind} in version {kind.version!r} cannot be handled as a {kind.kind}: "
                f"strict decoding error: {told}"
            )
        self.warnings += [f'unknown field "{path}"' for path in unknown]
        return patches.copied(obj)

    def _replace(self, kind: Kind, current: Object, obj: Object, subresource: str, dry_run: bool) -> Object:
        kept = current["metadata"]
        if subresource == "status":
            obj = {**current, "status": obj.get("status")}
        else:
            metadata = {**obj["metadata"], **{name: kept[name] for name in _SERVER_SET if name in kept}}
            metadata["resourceVersion"] = kept["resourceVersion"]
            if kind.namespaced:
                metadata["namespace"] = kept["namespace"]
            obj = {**obj, "metadata": metadata}
            if kind.has_status:
                obj.pop("status", None)
                if "status" in current:
                    obj["status"] = current["status"]
            if kind.key == JOBS.key:
                obj = defaults.filled(kind, obj)
                jobs.without(obj, jobs.disabled(self.minor_version))
            admission.require_valid(kind, obj)
            changes.require_changeable(kind, current, obj)
            hidden = "status" if kind.has_status else ""
            has_generation = kind.custom or kind.key == JOBS.key
            if has_generation and _without(obj, hidden) != _without(current, hidden):
                obj["metadata"] = {**obj["metadata"], "generation": kept.get("generation", 1) + 1}
        if obj == current or dry_run:
            return obj
        address = (kept.get("namespace", ""), kept["name"])
        written = self.store.put(kind.key, address, obj)
        pods_end_here = kind.key == "pods"
        if "deletionTimestamp" in kept and not obj["metadata"].get("finalizers") and not pods_end_here:
            self.store.remove(kind.key, address)
        return written

    def _require_namespace(self, kind: Kind, namespace: str) -> None:
        if not kind.namespaced:
            return
        found = self.store.get("namespaces", ("", namespace))
        if found is None:
            raise refusals.not_found("namespaces", "", namespace)
        if "deletionTimestamp" in found["metadata"] and kind.key != "events":
            told = f"unable to create new content in namespace {namespace} because it is being terminated"
            causes = [
                {
                    "reason": "NamespaceTerminating",
                    "message": f"namespace {namespace} is being terminated",
                    "field": "metadata.namespace",
                }
            ]
            raise refusals.Refused(403, "Forbidden", f"{kind.plural} is forbidden: {told}", {"causes": causes})

    def _grace(self, kind: Kind, current: Object, options: dict[str, Any]) -> int:
        """The grace period of a pod; 0 if it has no node."""
        if kind.key != "pods" or not current["spec"].get("nodeName"):
            return 0
        if current.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            return 0
        grace = options.get("gracePeriodSeconds")
        return int(current["spec"].get("terminationGracePeriodSeconds", 30) if grace is None else grace)

    def _terminate_namespace(self, current: Object) -> Object:
        if "deletionTimestamp" in current["metadata"]:
            return current
        metadata = {**current["metadata"], "deletionTimestamp": defaults.now()}
        ending = {**current, "metadata": metadata, "status": {"phase": "Terminating"}}
        return self.store.put("namespaces", ("", metadata["name"]), ending)

    def _serve_definitions(self, change: Change) -> None:
        if change.key != DEFINITIONS.key:
            return
        if change.after is None and change.before is not None:
            self.kinds.remove(change.before["metadata"]["name"])
        elif change.after is not None:
            self._serve(change.after)

    def _serve(self, definition: Object) -> None:
        for kind in of_definition(definition):
            self.kinds.add(kind)


def _without(obj: Object, member: str) -> Object:
    return {name: value for name, value in obj.items() if name not in ("metadata", member)}
