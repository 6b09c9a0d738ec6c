"""What is needed to repeat an experiment, collected here, where its code is, for a manager on another machine."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nni_manager.client.caller import own_environment
from nni_manager.provenance.collection import Asked, collect


@contextmanager
def collecting(
    code: Path, python: str, secrets: Mapping[str, str], config: Mapping[str, Any]
) -> Iterator[Future[dict[str, Any]]]:
    """Collects in a thread while the code is packed and sent; its end is waited for, ten seconds at most."""
    tuner = config.get("tuner")
    arguments = tuner.get("classArgs") if isinstance(tuner, Mapping) else None
    asked = Asked(
        code_directory=str(code),
        python=shutil.which(python or "python3") or sys.executable,
        environment=own_environment(),
        secrets=tuple(secrets.values()),
        tuner_arguments=arguments if isinstance(arguments, Mapping) else {},
    )
    with ThreadPoolExecutor(1, thread_name_prefix="provenance") as pool:
        yield pool.submit(lambda: asyncio.run(collect(asked)))
