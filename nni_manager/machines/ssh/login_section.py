"""The fields of a machine that is reached by SSH, in a section of a config."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pydantic import Field

from nni_manager.machines.ssh.address import JumpHost, hops, require_host, require_user
from nni_manager.platform_kit.section_model import Part, Remark, marked, secret

_FINGERPRINT = r"SHA256:[A-Za-z0-9+/]{43}"


class LoginFields(Part):
    """How a machine is reached by SSH."""

    host: str = Field(min_length=1, description="Host name or address of the machine.")
    port: int = Field(default=22, ge=1, le=65535, description="TCP port of its SSH server.")
    user: str = Field(min_length=1, description="Account on the machine.")
    password: str | None = secret("Password of that user. If it is set, `sshKeyFile` is ignored.", default=None)
    ssh_key_file: str | None = marked(
        "Private key file on the manager's machine. Default: the keys of `~/.ssh/config`, standard files such as"
        " `~/.ssh/id_rsa`, and the agent.",
        default=None,
        format="file",
        unless=("password",),
    )
    ssh_passphrase: str | None = secret("Passphrase of the private key.", default=None)
    host_key: str | None = Field(
        default=None,
        pattern=rf"^(accept-new|{_FINGERPRINT}(, *{_FINGERPRINT})*|(ssh|ecdsa)-[a-z0-9-]+ [A-Za-z0-9+/=]+( .*)?)$",
        description="Public key of the machine, or its fingerprint `SHA256:…`, in addition to `~/.ssh/known_hosts`. "
        "Several fingerprints, separated by commas, if several machines answer to one name. "
        "`accept-new` accepts the first key of an unknown machine and adds it to that file.",
    )
    proxy_jump: str | None = Field(
        default=None,
        min_length=1,
        pattern=r"^[^\s,]+(,\s*[^\s,]+)*$",
        description="Jump hosts, `user@host:port`, in order, separated by commas. Default: those of `~/.ssh/config`.",
    )
    python_path: str | None = Field(
        default=None,
        min_length=1,
        pattern=r"^[A-Za-z0-9_./~+@:=,-]+$",
        description="Folder on the machine that is prepended to `PATH`: a folder, not an interpreter.",
    )

    def wrong_names(self, place: str) -> Iterator[Remark]:
        """What `ssh` would not accept as a name: it could be an option, or a command of ~/.ssh/config. `place`: the
        field of the login."""
        names: list[tuple[str, Callable[[str], object], str]] = [
            ("host", require_host, self.host),
            ("user", require_user, self.user),
            *(("proxyJump", JumpHost.parse, hop) for hop in hops(self.proxy_jump or "")),
        ]
        for field, check, name in names:
            try:
                check(name)
            except ValueError as error:
                yield f"{place}.{field}", str(error)
