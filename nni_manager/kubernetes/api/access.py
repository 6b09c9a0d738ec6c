"""The address of a cluster and our account there: from a kubeconfig (file, `KUBECONFIG`, `~/.kube/config`) or a pod.

kubernetes-asyncio reads it, including exec plug-ins. Its import takes a second, so it happens with the first
connection.
"""

from __future__ import annotations

import asyncio
import base64
import importlib
import json
import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import yaml

from nni_manager.domain.errors import BadCredentials
from nni_manager.kubernetes.fields import KubernetesSection
from nni_manager.platform_kit.secret_texts import SecretTexts

#: Secret fields of a user. Certificates are not secret.
_SECRET_FIELDS = ("token", "password", "client-key-data")
#: ``--client-secret X`` and ``--client-secret=X``.
_SECRET_OPTION = re.compile(r"-.*(?:secret|password|passwd|token|key|credential)[^=]*(?:=(?P<value>.*))?", re.I | re.S)
#: A JSON Web Token, or the text after `Bearer` or `Basic` in a header.
_TOKEN = re.compile(r"\beyJ[\w-]+(?:\.[\w-]*)*|(?<=\bBearer )[^\s\"']+|(?<=\bBasic )[^\s\"']+")

if TYPE_CHECKING:
    from kubernetes_asyncio.client import Configuration

_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
#: Fields whose content is in the file itself (base64) or in another file.
_INLINE = ("certificate-authority", "client-certificate", "client-key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How a cluster is reached. Not secret: the files contain the secrets."""

    #: Paths, joined as in `KUBECONFIG`; empty: the account of the pod in which the manager runs.
    kubeconfig: str
    #: The context of the kubeconfig; empty: the file's current one.
    context: str = ""
    namespace: str = "default"

    @classmethod
    def of(cls, config: KubernetesSection, environment: Mapping[str, str] = os.environ) -> Access:
        """The access that the section sets, or else the one that `kubectl` would use."""
        kubeconfig = config.kubeconfig or environment.get("KUBECONFIG", "")
        if not kubeconfig and _IN_CLUSTER not in environment:
            kubeconfig = str(Path.home() / ".kube" / "config")
        return cls(kubeconfig=kubeconfig, context=config.context or "", namespace=config.namespace)

    @property
    def key(self) -> str:
        """The connection's key: server, user and namespace, without secrets.

        Blocks on a small file; unreadable files are ignored.
        """
        try:
            server, user = _server_and_user(self)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, yaml.YAMLError):
            server, user = self.kubeconfig, self.context
        return f"kubernetes {server} {user} {self.namespace}"

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Access:
        return cls(**json.loads(text))


def _server_and_user(access: Access) -> tuple[str, str]:
    if not access.kubeconfig:
        return "in-cluster", os.environ.get(_IN_CLUSTER, "")
    paths = [Path(path).expanduser() for path in access.kubeconfig.split(os.pathsep) if path]
    files = [yaml.safe_load(path.read_text()) for path in paths if path.exists()]
    name = access.context or next((file["current-context"] for file in files if file.get("current-context")), "")
    context = _named(files, "contexts", name)["context"]
    address = urlsplit(_named(files, "clusters", context["cluster"])["cluster"]["server"])
    return f"{address.scheme}://{address.hostname}:{address.port or 443}{address.path.rstrip('/')}", context["user"]


def _named(files: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] | None = next(
        (one for file in files for one in file.get(kind) or () if one["name"] == name), None
    )
    if found is None:
        raise LookupError(f"{kind} has no {name}")
    return found


async def load(access: Access, folder: Path) -> Configuration:
    """The settings of the client, credentials included: never log them.

    `folder`: for certificates from the kubeconfig; may be removed after the client exists. Raises BadCredentials.
    """
    await asyncio.to_thread(_import)
    from kubernetes_asyncio.client import Configuration
    from kubernetes_asyncio.config import load_incluster_config
    from kubernetes_asyncio.config.kube_config import KubeConfigLoader, KubeConfigMerger

    found, secrets = Configuration(), SecretTexts()
    try:
        if not access.kubeconfig:
            load_incluster_config(client_configuration=found)  # type: ignore[no-untyped-call]  # of a library
            return found
        merged = KubeConfigMerger(access.kubeconfig).config
        if merged is None:
            raise BadCredentials(
                f"kubeconfig: {access.kubeconfig} does not exist; correct the path, or set KUBECONFIG for the daemon"
            )
        secrets.keep(*secrets_of_users(merged.value["users"]))
        for kind, part in (("users", "user"), ("clusters", "cluster")):
            for number, node in enumerate(merged.value[kind]):
                _write_out(node.value[part], folder / f"{part}-{number}")
        loader = KubeConfigLoader(config_dict=merged, active_context=access.context or None, config_base_path=None)
        await loader.load_and_set(found)
    except BadCredentials:
        raise
    except Exception as error:  # invalid files and exec plug-ins raise various errors
        words = secrets.shown(_TOKEN.sub("***", str(error)))
        raise BadCredentials(_sentence(access, type(error).__name__, words)) from None
    return found


def _import() -> None:
    for module in ("client", "config"):
        importlib.import_module(f"kubernetes_asyncio.{module}")
    logging.getLogger("kubernetes_asyncio.config.kube_config").addFilter(_is_not_raised)


def _is_not_raised(_: logging.LogRecord) -> bool:
    """Masks the output of exec plug-ins, which the library logs and raises unchanged. A separate function, as a
    filter must be added only once, however often credentials are read."""
    return sys.exc_info()[0] is None


def _sentence(access: Access, kind: str, words: str) -> str:
    where = access.kubeconfig or "the account of this pod"
    context = f", context {access.context}" if access.context else ""
    return f"kubeconfig: {where}{context} is not usable ({kind}: {words}); test it with `kubectl get pods`"


def _write_out(entry: dict[str, Any] | None, folder: Path) -> None:
    """Writes certificates and keys from the kubeconfig to files of ours: the library would leak its files and
    descriptors."""
    for name in _INLINE:
        data = (entry or {}).pop(f"{name}-data", None)
        if data and entry is not None:
            folder.mkdir(mode=0o700, exist_ok=True)
            path = folder / name
            path.touch(mode=0o600)
            path.write_bytes(base64.standard_b64decode(data))
            entry[name] = str(path)


def secrets_of_users(users: Iterable[Any]) -> Iterator[str]:
    """The secrets of all users: their own, their plug-ins' variables, and options by name. `users`: nodes of the
    library, ``{"name", "user"}``."""
    for node in users:
        user = node.value.get("user") or {}
        yield from (str(user[name]) for name in _SECRET_FIELDS if user.get(name))
        provider, plug_in = user.get("auth-provider") or {}, user.get("exec") or {}
        yield from map(str, (provider.get("config") or {}).values())
        yield from (str(one.get("value", "")) for one in plug_in.get("env") or ())
        yield from _of_options([str(one) for one in plug_in.get("args") or ()])


def _of_options(arguments: list[str]) -> Iterator[str]:
    for number, argument in enumerate(arguments):
        if (option := _SECRET_OPTION.fullmatch(argument)) is not None:
            yield from arguments[number + 1 : number + 2] if option["value"] is None else [option["value"]]
