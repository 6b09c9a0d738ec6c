"""`apt-get` of an image, which installs only the NFS client; jobs of the service do that before they mount.

As in most images, package lists are missing before `apt-get update`, and without a terminal questions cannot be
answered. Its messages are Debian's; the names of its servers are invented.
"""

from __future__ import annotations

import shutil

from tests.fakes import own_root

_PACKAGES = "/run/cluster/packages"
_LISTS = "/tmp/.apt-lists"
_APT_GET = f"""\
#!/bin/sh
before= verb= names= agreed=
for word; do
    case $before:$word in
    -o:* | --option:*) ;;
    *:-y | *:--yes | *:--assume-yes | *:-*qy | *:-yq*) agreed=1 ;;
    *:-*) ;;
    *) if [ "$verb" ]; then names="$names $word"; else verb=$word; fi ;;
    esac
    before=$word
done
case $verb in
update)
    if [ -d {_PACKAGES} ]; then
        touch {_LISTS}
    else # a failure is a warning
        echo "W: Failed to fetch http://archive.example.test/InRelease  Could not resolve 'archive.example.test'" >&2
        echo "W: Some index files failed to download. They have been ignored, or old ones used instead." >&2
    fi
    ;;
install)
    for name in $names; do
        if [ "$name" != nfs-common ] || [ ! -e {_LISTS} ]; then
            echo "E: Unable to locate package $name" >&2
            exit 100
        fi
    done
    if [ ! "$agreed" ]; then
        echo "Do you want to continue? [Y/n] Abort."
        exit 1
    fi
    [ ! "$names" ] || cp {_PACKAGES}/* /usr/sbin/
    ;;
*)
    echo "E: Invalid operation $verb" >&2
    exit 100
    ;;
esac
"""


def files(programs: dict[str, str]) -> dict[str, str]:
    """Path inside → text. `programs`: name → text of the package's programs; empty: package servers are unreachable."""
    place = shutil.which("apt-get", path=own_root.PROGRAMS) or "/usr/sbin/apt-get"
    return {place: _APT_GET, **{f"{_PACKAGES}/{name}": text for name, text in programs.items()}}
