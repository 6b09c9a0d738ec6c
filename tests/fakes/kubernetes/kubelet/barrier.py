"""The barrier of FrameworkController's examples: waits until every task has an address, and writes the addresses.

The fake's nodes run this script instead of the image `frameworkcontroller/frameworkbarrier`.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path


def main() -> int:
    folder, account = Path(sys.argv[1]), Path(sys.argv[2])
    until = time.monotonic() + float(os.environ.get("BARRIER_CHECK_TIMEOUT_SEC", "600"))
    while time.monotonic() < until:
        framework = _framework(account)
        if framework is not None and (tasks := _addresses(framework)) is not None:
            _write(folder, framework, tasks)
            print("barrier passed", flush=True)
            return 0
        time.sleep(0.1)
    print("barrier timeout", flush=True)
    return 1


def _framework(account: Path) -> dict | None:
    address = f"{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
    namespace, name = os.environ["FC_FRAMEWORK_NAMESPACE"], os.environ["FC_FRAMEWORK_NAME"]
    path = f"/apis/frameworkcontroller.microsoft.com/v1/namespaces/{namespace}/frameworks/{name}"
    scheme = os.environ.get("KUBERNETES_SERVICE_SCHEME", "https")
    headers = {"Authorization": f"Bearer {(account / 'token').read_text()}"}
    request = urllib.request.Request(f"{scheme}://{address}{path}", headers=headers)
    context = ssl.create_default_context(cafile=str(account / "ca.crt")) if scheme == "https" else None
    try:
        with urllib.request.urlopen(request, context=context, timeout=10) as answer:
            return json.load(answer)
    except (urllib.error.URLError, OSError) as error:
        print(f"failed to get Framework object from ApiServer: {error}", flush=True)
        return None


def _addresses(framework: dict) -> dict[str, list[str]] | None:
    roles = ((framework.get("status") or {}).get("attemptStatus") or {}).get("taskRoleStatuses") or []
    found = {role["name"]: [task["attemptStatus"]["podIP"] for task in role["taskStatuses"]] for role in roles}
    return found if all(address for addresses in found.values() for address in addresses) else None


def _write(folder: Path, framework: dict, tasks: dict[str, list[str]]) -> None:
    (folder / "framework.json").write_text(json.dumps(framework))
    lines = ["#!/bin/bash"]
    for role, addresses in tasks.items():
        name = role.upper()
        with_ports = ",".join(f"{address}:${{FB_{name}_PORT}}" for address in addresses)
        lines += [f"export FB_{name}_IPS={','.join(addresses)}", f"export FB_{name}_ADDRESSES={with_ports}"]
    (folder / "injector.sh").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
