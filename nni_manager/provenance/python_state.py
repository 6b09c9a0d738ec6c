"""The Python of a caller, and what is installed in it, as that Python itself says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from nni_manager.provenance import child
from nni_manager.provenance.child import NoAnswer

#: Packages that are kept, and bytes of the answer.
MOST_PACKAGES = 2000
_MOST_BYTES = 2**20
#: Names of folders alone: reading the metadata of hundreds of packages takes a second. Any Python 3 runs it.
_LISTING = """\
import json, os, sys
found = {}
for place in sys.path:
    try:
        names = sorted(os.listdir(place)) if place else []
    except OSError:
        names = []
    for name in names:
        stem, kind = os.path.splitext(name)
        if kind in (".dist-info", ".egg-info"):
            parts = stem.split("-")
            found.setdefault(parts[0].replace("_", "-").lower(), parts[1] if len(parts) > 1 else "")
version = ".".join(map(str, sys.version_info[:3]))
print(json.dumps({"version": version, "packages": sorted(found.items())}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonState:
    executable: str
    #: Empty: not known, `problem` says why.
    version: str = ""
    #: (name, version) in the order of names; at most `MOST_PACKAGES`. A version is empty where its folder has none.
    packages: tuple[tuple[str, str], ...] = ()
    problem: str = ""


async def look(executable: str, environment: Mapping[str, str]) -> PythonState:
    """What that Python says of itself; never raises. `environment`: with the PYTHONPATH that trials have."""
    command = (executable, "-c", _LISTING)
    try:
        output = await child.read(command, directory="/", environment=environment, most=_MOST_BYTES)
        found = json.loads(output.data.strip().splitlines()[-1])  # after what a sitecustomize prints
        packages = tuple((str(name), str(version)) for name, version in found["packages"][:MOST_PACKAGES])
        return PythonState(executable=executable, version=str(found["version"]), packages=packages)
    except NoAnswer as error:
        return PythonState(executable=executable, problem=str(error))
    except (ValueError, LookupError, TypeError):
        return PythonState(executable=executable, problem="it does not say what is installed in it")
