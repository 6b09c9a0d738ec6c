#!/bin/sh
# A machine with an SSH server. The manager's folder ~/.ssh, which is mounted here, gets a key to log in with and this
# machine's host key, so that nobody has to be believed: both containers belong to whoever owns the volume.
set -eu
ssh=/manager-ssh
mkdir -p /run/sshd /root/.ssh
ssh-keygen -q -A
[ -s "$ssh/id_ed25519" ] || ssh-keygen -q -t ed25519 -N '' -C manager -f "$ssh/id_ed25519"
cp "$ssh/id_ed25519.pub" /root/.ssh/authorized_keys
# Its own line alone: others may stand there.
{
    grep -v '^worker ' "$ssh/known_hosts" 2>/dev/null || true
    echo "worker $(cut -d' ' -f1,2 /etc/ssh/ssh_host_ed25519_key.pub)"
} >"$ssh/known_hosts.new"
mv "$ssh/known_hosts.new" "$ssh/known_hosts"
chmod 700 "$ssh" /root/.ssh
chown -R 10001 "$ssh"
exec /usr/sbin/sshd -D -e -o PasswordAuthentication=no
