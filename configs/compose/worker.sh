#!/bin/sh
# A machine with an SSH server, where the user `worker` runs trials. The folder /keys has the manager's public key and this
# machine's host key; the manager's private key is not mounted here.
set -eu
mkdir -p /run/sshd
install -m 600 /keys/ssh_host_ed25519_key /etc/ssh/ssh_host_ed25519_key
install -m 644 /keys/authorized_keys /etc/ssh/authorized_keys
exec /usr/sbin/sshd -D -e -o HostKey=/etc/ssh/ssh_host_ed25519_key -o AuthorizedKeysFile=/etc/ssh/authorized_keys \
    -o AllowUsers=worker -o PermitRootLogin=no -o PasswordAuthentication=no -o KbdInteractiveAuthentication=no
