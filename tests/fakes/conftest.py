"""On a real cluster (`tests.fakes.kubernetes.testing`), skip tests of kinds that it does not serve, by name."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

#: Answers of servers about an unknown kind: as text, or in a Status.
_NO_KIND = ("404 page not found", "could not find the requested resource")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    try:
        return (yield)
    except Exception as error:
        told = str(getattr(error, "body", ""))
        if "NNI_TEST_KUBECONFIG" in os.environ and any(words in told for words in _NO_KIND):
            pytest.skip(f"the cluster does not serve the kind: {told.strip()[:100]}")
        raise
