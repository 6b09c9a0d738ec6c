"""The pod of one job: environment, mounts and process 1."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.fakes import sandbox
from tests.fakes.sandbox import Container, Mount

#: Inside the pod, the user of the fake: storage has the same owner on both sides.
_UID, _GID = 0, 0
_RUNTIME = "/dlts-runtime"
#: Process 1, run by `bash`: no trap; the command runs below `runuser` and a login shell. It forwards no signals.
_BOOTSTRAP = f"""\
#!/bin/bash
set -ex
bash $(dirname $0)/init_user.sh
mkdir -p {_RUNTIME}/status
touch {_RUNTIME}/status/READY
set +e
printenv DLTS_LAUNCH_CMD > {_RUNTIME}/status/job_command.sh
chmod +x {_RUNTIME}/status/job_command.sh
%s
EXIT_CODE=$?
echo `date` ": ${{EXIT_CODE}}"
exit ${{EXIT_CODE}}
"""
_AS_USER = f"runuser -s /bin/bash -l ${{DLTS_USER_NAME}} -c {_RUNTIME}/status/job_command.sh"
#: The closest to a login without root.
_AS_SELF = (
    f"env -i HOME=/home/${{DLTS_USER_NAME}} USER=${{DLTS_USER_NAME}} PATH=/usr/local/bin:/usr/bin:/bin"
    f" /bin/bash -l -c 'cd; exec {_RUNTIME}/status/job_command.sh'"
)
#: A login shell starts with an empty environment: the user's profile restores the pod's variables.
_INIT_USER = f"""\
#!/bin/bash
set -e
environment={_RUNTIME}/env/pod.env
mkdir -p {_RUNTIME}/env
home=/home/${{DLTS_USER_NAME}}
chown {_UID}:{_GID} $home 2>/dev/null || true
[ ! -d /job ] || chown {_UID} /job 2>/dev/null || true
compgen -e | while read name; do
    case $name in HOME*|INTERACTIVE*|LS_COLORS*|PATH*|PWD*|DLTS_SSH_PRIVATE_KEY) continue ;; esac
    printf "export $name=%q\\n" "${{!name}}" >> $environment
done
echo "export PATH=$PATH:\\${{PATH}}" >> $environment
grep -qx "^\\s*. $environment" $home/.profile 2>/dev/null || cat << PROFILE >> $home/.profile
if [ -f $environment ]; then
    . $environment
fi
PROFILE
"""


def alias(email: str) -> str:
    """A user's name in pods."""
    return email.partition("@")[0]


def environment(job: Mapping[str, Any]) -> dict[str, str]:
    """Environment of the pod. ValueError: the template with these `envs` is not YAML. Other fields are ignored."""
    name = alias(job["userName"])
    made = {
        "FAMILY_TOKEN": str(job["familyToken"]),
        "POD_NAME": job["jobId"],
        "POD_IP": "127.0.0.1",
        "DLTS_PREEMPTIBLE": str(job["preemptionAllowed"]).lower(),
        "DLTS_LAUNCH_CMD": job["cmd"],
        "DLTS_SSH_PRIVATE_KEY": "a key",
    }
    both = {
        "JOB_ID": job["jobId"],
        "ROLE_NAME": "master",
        "NUM_PS": "0",
        "NUM_WORKER": "1",
        "GID": str(_GID),
        "UID": str(_UID),
        "USER_NAME": name,
        "USER_EMAIL": job["userName"],
        "VC_NAME": job["vcName"],
        "NUM_GPU_PER_WORKER": str(job["resourcegpu"]),
    }
    made |= {f"{prefix}_{key}": value for prefix in ("DLWS", "DLTS") for key, value in both.items()}
    if int(job["resourcegpu"]) < 1:
        made["NVIDIA_VISIBLE_DEVICES"] = ""
    return made | {str(one["name"]): _in_template(str(one["value"])) for one in job.get("envs") or []}


def _in_template(value: str) -> str:
    try:
        read: dict[str, Any] = yaml.safe_load(f'value: "{value}"')
        return str(read["value"])
    except (yaml.YAMLError, TypeError, KeyError) as error:
        raise ValueError(f"Pod template is not YAML: {error}") from error


def start(folder: Path, storage: Path, job: Mapping[str, Any], mounts: Sequence[Mount]) -> None:
    """`folder`: new. `storage`: the cluster's NFS. `mounts`: from its configuration. Raises as `environment`."""
    variables, name = environment(job), alias(job["userName"])
    own = {
        "/job": storage / "work" / job["jobPath"],
        f"/home/{name}": storage / "work" / name,
        "/work": storage / "work" / name,
        "/data": storage / "storage",
        _RUNTIME: folder.with_name(f"{folder.name}-runtime"),
    }
    for source in own.values():
        source.mkdir(parents=True, exist_ok=True)
    (storage / "work" / name / ".profile").touch()
    is_root = os.geteuid() == 0
    files = {
        "/dlws-scripts/bootstrap.sh": _BOOTSTRAP % (_AS_USER if is_root else _AS_SELF),
        "/dlws-scripts/init_user.sh": _INIT_USER,
        "/etc/passwd": f"root:x:0:0:root:/root:/bin/bash\n{name}:x:{_UID}:{_GID}::/home/{name}:/bin/bash\n",
        "/etc/pam.d/runuser-l": "auth sufficient pam_rootok.so\nsession optional pam_permit.so\n",
        "/etc/group": f"root:x:0:\ndomainusers:x:{_GID}:\n",
    }
    seen = [*(Mount(source, Path(target)) for target, source in own.items()), *mounts]
    command = ["bash", "/dlws-scripts/bootstrap.sh"]
    sandbox.start(Container(folder, command, variables, seen, files, directory="/"))
