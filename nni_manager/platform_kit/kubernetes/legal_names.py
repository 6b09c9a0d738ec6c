"""Names of a cluster's objects in the config, as its API takes them: what it would refuse later is said at once."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_RESOURCE = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def _label(text: str) -> str:
    if not _LABEL.fullmatch(text):
        raise ValueError("must be of lower case letters, digits and hyphens, at most 63, with no hyphen at either end")
    return text


def _subdomain(text: str) -> str:
    if not _SUBDOMAIN.fullmatch(text):
        raise ValueError(
            "must be of lower case letters, digits, hyphens and dots, at most 253, with a letter or digit at either end"
        )
    return text


def _resource(text: str) -> str:
    if not _RESOURCE.fullmatch(text):
        raise ValueError("must be the name of a resource of nodes, such as nvidia.com/gpu")
    return text


#: The name of a namespace.
Label = Annotated[str, AfterValidator(_label)]
#: The name of a secret, claim, class or account.
Subdomain = Annotated[str, AfterValidator(_subdomain)]
#: The name of a resource that nodes have: ``nvidia.com/gpu``.
ResourceName = Annotated[str, AfterValidator(_resource)]
