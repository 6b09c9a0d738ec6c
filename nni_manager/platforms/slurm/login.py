"""How a section reaches its cluster: commands on this machine, or over a login."""

from __future__ import annotations

from collections.abc import Mapping

from nni_manager.machines.shell import LocalShell
from nni_manager.machines.ssh.address import Address, Credential
from nni_manager.platforms.slurm.cluster import Cluster
from nni_manager.platforms.slurm.config import SlurmConfig

_HERE = "slurm:this machine"


def key_of(config: SlurmConfig) -> str:
    """The identity of the account, without secrets."""
    return _HERE if config.login is None else f"slurm:{Address.of(_entry(config)).key}"


def credential_of(config: SlurmConfig) -> str:
    return "" if config.login is None else Credential.of(_entry(config)).as_text()


def cluster_of(config: SlurmConfig, environment: Mapping[str, str] | None) -> Cluster:
    """A new connection. `environment`: of the caller, for commands on this machine; None: the manager's."""
    if config.login is None:
        return Cluster(_HERE, LocalShell(environment), config.poll_interval)
    from nni_manager.platforms.slurm.ssh_cluster import SshCluster  # needs the extra `ssh`

    return SshCluster(key_of(config), Address.of(_entry(config)), config.poll_interval)


def _entry(config: SlurmConfig) -> Mapping[str, object]:
    assert config.login is not None, "asked only with a login"
    return config.login.model_dump(by_alias=True, exclude_none=True)
