"""The address of a cluster and our account there: of a kubeconfig (file, `KUBECONFIG`, `~/.kube/config`) or of a pod.

kubernetes-asyncio reads it, exec plug-ins included. It is heavy (a second), so it is imported when a connection is
made, and not before.
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

#: Fields of a user that are secret. Certificates are not.
_SECRET_FIELDS = ("token", "password", "client-key-data")
#: ``--client-secret X`` and ``--client-secret=X``.
_SECRET_OPTION = re.compile(r"-.*(?:secret|password|passwd|token|key|credential)[^=]*(?:=(?P<value>.*))?", re.I | re.S)
#: A JSON Web Token, or what follows `Bearer` and `Basic` in a header.
_TOKEN = re.compile(r"\beyJ[\w-]+(?:\.[\w-]*)*|(?<=\bBearer )[^\s\"']+|(?<=\bBasic )[^\s\"']+")

if TYPE_CHECKING:
    from kubernetes_asyncio.client import Configuration

_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
#: Fields with content in the file itself (base64) or in another file.
_INLINE = ("certificate-authority", "client-certificate", "client-key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The way in which a cluster is reached. No secret: the files hold them."""

    #: Paths, joined as in `KUBECONFIG`; empty: the account of the pod that we run in.
    kubeconfig: str
    #: The context of the kubeconfig; empty: the file's current one.
    context: str = ""
    namespace: str = "default"

    @classmethod
    def of(cls, config: KubernetesSection, environment: Mapping[str, str] = os.environ) -> Access:
        """The access that the section names, else the one that `kubectl` would use."""
        kubeconfig = config.kubeconfig or environment.get("KUBECONFIG", "")
        if not kubeconfig and _IN_CLUSTER not in environment:
            kubeconfig = str(Path.home() / ".kube" / "config")
        return cls(kubeconfig=kubeconfig, context=config.context or "", namespace=config.namespace)

    @property
    def key(self) -> str:
        """The connection's key: server, user and namespace, without secrets.

        Blocks on a small file; quiet when it cannot be read.
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

    `folder`: for certificates that stand in the kubeconfig; it may go when a client was made. Raises BadCredentials.
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
                f"kubeconfig: {access.kubeconfig} is not there; give the path of one, or set KUBECONFIG for the daemon"
            )
        secrets.keep(*secrets_of_users(merged.value["users"]))
        for kind, part in (("users", "user"), ("clusters", "cluster")):
            for number, node in enumerate(merged.value[kind]):
                _write_out(node.value[part], folder / f"{part}-{number}")
        loader = KubeConfigLoader(config_dict=merged, active_context=access.context or None, config_base_path=None)
        await loader.load_and_set(found)
    except BadCredentials:
        raise
    except Exception as error:  # a broken file and an exec plug-in fail in ways of their own
        words = secrets.shown(_TOKEN.sub("***", str(error)))
        raise BadCredentials(_sentence(access, type(error).__name__, words)) from None
    return found


def _import() -> None:
    for module in ("client", "config"):
        importlib.import_module(f"kubernetes_asyncio.{module}")
    logging.getLogger("kubernetes_asyncio.config.kube_config").addFilter(_is_not_raised)


def _is_not_raised(_: logging.LogRecord) -> bool:
    """The library logs the words of an exec plug-in as they are, and raises them, too. A function of its own: a filter
    is added once, however often credentials are read."""
    return sys.exc_info()[0] is None


def _sentence(access: Access, kind: str, words: str) -> str:
    where = access.kubeconfig or "the account of this pod"
    context = f", context {access.context}" if access.context else ""
    return f"kubeconfig: {where}{context} cannot be used ({kind}: {words}); try `kubectl get pods` with it"


def _write_out(entry: dict[str, Any] | None, folder: Path) -> None:
    """Writes certificates and keys that stand in the kubeconfig itself to files of ours: the library would leave its
    files and descriptors behind."""
    for name in _INLINE:
        data = (entry or {}).pop(f"{name}-data", None)
        if data and entry is not None:
            folder.mkdir(mode=0o700, exist_ok=True)
            path = folder / name
            path.touch(mode=0o600)
            path.write_bytes(base64.standard_b64decode(data))
            entry[name] = str(path)


def secrets_of_users(users: Iterable[Any]) -> Iterator[str]:
    """The secrets of all users, of each its own, its plug-in's variables, and its options by name. `users`: nodes of
    the library, ``{"name", "user"}``."""
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
