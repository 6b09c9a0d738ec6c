"""Refused calls as the scheduler's errors."""

from __future__ import annotations

import re

from nni_manager.domain.errors import BadCredentials, PlatformError, PlatformUnavailable, SubmitRejected
from nni_manager.domain.service import Wait, WaitCode
from nni_manager.kubernetes.api.client import Refusal

_QUOTA = re.compile(r"exceeded quota", re.IGNORECASE)
_ENDING = re.compile(r"being terminated", re.IGNORECASE)


def quota(refusal: Refusal) -> Wait | None:
    """The reason for waiting when a quota is used up; None for any other refusal."""
    if refusal.status == 403 and _QUOTA.search(refusal.message):
        return Wait(code=WaitCode.QUOTA, sentence=refusal.message)
    return None


def error(refusal: Refusal, doing: str, namespace: str) -> PlatformError:
    """The error that a refusal stands for. `doing`: what was asked, e.g. ``create tfjobs``."""
    if refusal.status == 401:
        return BadCredentials(f"the cluster refuses the credentials ({refusal}); log in anew")
    if refusal.status == 403 and not _ENDING.search(refusal.message):
        return BadCredentials(
            f"we may not {doing} in namespace {namespace} ({refusal.message}); have an administrator grant it"
        )
    if refusal.status == 404:
        return PlatformUnavailable(
            f"we cannot {doing} in namespace {namespace} ({refusal.message}): the namespace, or the kind itself, is not"
            " there",
            refused=True,
        )
    if refusal.status in (400, 413, 422):
        return SubmitRejected(f"the cluster does not take it: {refusal.message}")
    return PlatformUnavailable(f"the cluster cannot {doing} now ({refusal})", refused=refusal.status < 500)
