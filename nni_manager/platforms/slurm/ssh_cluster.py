"""A cluster that is reached over a login."""

from __future__ import annotations

from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.machines.ssh.address import Address, Credential
from nni_manager.machines.ssh.login_shell import LoginShell
from nni_manager.platforms.slurm.cluster import Cluster


class SshCluster(Cluster):
    """Its credential is that of the login."""

    def __init__(self, key: str, address: Address, poll_s: float) -> None:
        self._login = LoginShell(address)
        super().__init__(key, self._login, poll_s)

    async def check(self, credential: str) -> None:
        try:
            await self._login.check(Credential.parse(credential))
        except PlatformUnavailable as error:
            self.note_down(str(error))
            raise
        self.note_up()

    async def use(self, credential: str) -> None:
        await self._login.use(Credential.parse(credential))

    def try_again(self) -> None:
        self._login.try_again()
