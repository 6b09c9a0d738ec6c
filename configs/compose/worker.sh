#!/bin/sh
# A machine with an SSH server. The manager's folder ~/.ssh, which is mounted here, gets a key for it and its host key.
set -eu
ssh=/manager-ssh
mkdir -p /run/sshd /root/.ssh
[ -s "$ssh/id_ed25519" ] || ssh-keygen -q -t ed25519 -N '' -f "$ssh/id_ed25519"
cp "$ssh/id_ed25519.pub" /root/.ssh/authorized_keys
echo "worker $(cut -d' ' -f1,2 /etc/ssh/ssh_host_ed25519_key.pub)" >"$ssh/known_hosts"
chmod 700 "$ssh" /root/.ssh
chown -R 10001 "$ssh"
exec /usr/sbin/sshd -D -e -o PasswordAuthentication=no
