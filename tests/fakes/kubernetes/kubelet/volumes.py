"""The volumes of a pod as folders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.fakes.kubernetes.kinds import CLAIMS, CONFIG_MAPS, SECRETS
from tests.fakes.kubernetes.kubelet import environment
from tests.fakes.kubernetes.store import Object

if TYPE_CHECKING:
    from tests.fakes.kubernetes.cluster import Cluster


#: Marks folders with files from objects, in which real kubelets have a link with this name.
VOLUME_OF_FILES = "..data"


class NotMounted(Exception):
    """A volume cannot be mounted (yet)."""


class Volumes:
    """Folders of the volumes of one pod."""

    def __init__(self, cluster: Cluster, pod: Object, folder: Path) -> None:
        self._cluster, self._pod, self._folder = cluster, pod, folder
        self._namespace = pod["metadata"]["namespace"]

    def mount(self) -> dict[str, Path]:
        """Each volume's folder by name; the pod's own are created."""
        found = {}
        for volume in self._pod["spec"].get("volumes") or []:
            name = volume["name"]
            try:
                found[name] = self._mount(name, volume)
            except (environment.NotConfigured, NotMounted) as error:
                raise NotMounted(f'MountVolume.SetUp failed for volume "{name}" : {error}') from error
        return found

    def _mount(self, name: str, volume: dict[str, Any]) -> Path:
        source = next((kind for kind in volume if kind != "name"), "emptyDir")
        given = volume.get(source) or {}
        own = self._folder / "volumes" / name
        match source:
            case "emptyDir":
                own.mkdir(parents=True, exist_ok=True)
                return own
            case "hostPath":
                return self._host(given)
            case "nfs":
                return self._cluster.storage.nfs(given["server"], given["path"])
            case "azureFile":
                secret = environment.values(self._cluster.verbs, SECRETS.key, self._namespace, given)
                return self._cluster.storage.azure(secret, given["shareName"])
            case "persistentVolumeClaim":
                return self._claim(given["claimName"])
            case "secret" | "configMap" | "projected" | "downwardAPI":
                self._write(own, self._files(source, given))
                return own
        raise NotMounted(f"volumes of the kind {source} are not to be had here")

    def _host(self, given: dict[str, Any]) -> Path:
        path = self._folder / "host" / given["path"].strip("/")
        path.mkdir(parents=True, exist_ok=True)
        return path

    def _claim(self, name: str) -> Path:
        claim = self._cluster.verbs.find(CLAIMS, self._namespace, name)
        if claim is None:
            raise NotMounted(f'persistentvolumeclaim "{name}" not found')
        if claim["status"].get("phase") != "Bound":
            raise NotMounted(f'persistentvolumeclaim "{name}" is not bound')
        return self._cluster.storage.claim(self._namespace, name)

    def _files(self, source: str, given: dict[str, Any]) -> dict[str, bytes]:
        verbs = self._cluster.verbs
        if source == "projected":
            files: dict[str, bytes] = {}
            for part in given.get("sources") or []:
                for kind, member in part.items():
                    files.update(self._files(kind, member))
            return files
        if source == "serviceAccountToken":
            account = self._pod["spec"]["serviceAccountName"]
            token = self._cluster.account_token(self._namespace, account, given.get("expirationSeconds", 3600))
            return {given.get("path", "token"): token.encode()}
        if source == "downwardAPI":
            items = given.get("items") or []
            return {
                item["path"]: environment.field(self._pod, item["fieldRef"]["fieldPath"]).encode() for item in items
            }
        key = SECRETS.key if source == "secret" else CONFIG_MAPS.key
        held = environment.values(verbs, key, self._namespace, given)
        items = given.get("items")
        return {item["path"]: held[item["key"]] for item in items if item["key"] in held} if items else held

    def _write(self, folder: Path, files: dict[str, bytes]) -> None:
        (folder / VOLUME_OF_FILES).mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod(0o755)  # a script of a config map is often what is started
