"""The configuration files of the cluster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.fakes.slurm.installation import OWN
from tests.fakes.slurm.memory import POLL, slurm_lines

NODES = ("n1", "n2")
CPUS, MEMORY_MB = 4, 2048
CLUSTER = "nnitest"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterKind:
    """Which Slurm a cluster is. `version`: of `installation.VERSIONS`; `memory`: `memory.POLL` or `memory.CGROUP`;
    `min_job_age_s`: seconds for which the controller remembers ended jobs."""

    version: str = OWN
    has_accounting: bool = True
    memory: str = POLL
    min_job_age_s: int = 600


def slurm_conf(folder: Path, host: str, ports: dict[str, int], kind: ClusterKind, first_job: int) -> str:
    """`slurm.conf`. `ports`: of `slurmctld`, `slurmdbd` and each node; `first_job`: id of the first job."""
    socket = folder / "munge/socket"
    lines = [
        f"ClusterName={CLUSTER}",
        f"SlurmctldHost={host}(127.0.0.1)",
        f"SlurmctldPort={ports['slurmctld']}",
        "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny",
        "SlurmUser=root",
        "SlurmdUser=root",
        f"AuthInfo=socket={socket},cred_expire=5",
        f"StateSaveLocation={folder}/state",
        f"SlurmdSpoolDir={folder}/%n/spool",
        f"SlurmctldPidFile={folder}/slurmctld.pid",
        f"SlurmdPidFile={folder}/%n/slurmd.pid",
        f"FirstJobId={first_job}",
        *slurm_lines(kind.memory),
        "MpiDefault=none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1",
        "PreemptType=preempt/partition_prio",
        "PreemptMode=REQUEUE",
        "DefMemPerCPU=128",
        f"MinJobAge={kind.min_job_age_s}",
        "KillWait=2",
        "ReturnToService=2",
        "SlurmctldTimeout=20",
        "SlurmdTimeout=10",
        "SlurmdParameters=config_overrides",
        *(_accounting(folder, ports) if kind.has_accounting else ()),
        *(
            f"NodeName={node} NodeHostname={node} NodeAddr=127.0.0.1 Port={ports[node]} CPUs={CPUS}"
            f" RealMemory={MEMORY_MB} State=UNKNOWN"
            for node in NODES
        ),
        "PartitionName=main Nodes=ALL Default=YES PriorityTier=5 PreemptMode=CANCEL MaxTime=INFINITE",
        "PartitionName=again Nodes=ALL PriorityTier=5 PreemptMode=REQUEUE MaxTime=INFINITE",
        "PartitionName=urgent Nodes=ALL PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE",
        "PartitionName=short Nodes=ALL PriorityTier=5 PreemptMode=OFF MaxTime=1 DefaultTime=1",
        "PartitionName=private Nodes=ALL PriorityTier=5 PreemptMode=OFF AllowAccounts=other",
        "PartitionName=closed Nodes=ALL PriorityTier=5 PreemptMode=OFF State=DOWN",
    ]
    return "".join(f"{line}\n" for line in lines)


def _accounting(folder: Path, ports: dict[str, int]) -> list[str]:
    return [
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=127.0.0.1",
        f"AccountingStoragePort={ports['slurmdbd']}",
        f"AccountingStoragePass={folder}/munge/socket",
        "AccountingStorageEnforce=associations,limits,qos,safe",
    ]


def slurmdbd_conf(folder: Path, host: str, ports: dict[str, int], password: str) -> str:
    """`slurmdbd.conf`, which contains the password of the database."""
    lines = [
        f"AuthInfo=socket={folder}/munge/socket",
        f"DbdHost={host}",
        "DbdAddr=127.0.0.1",
        f"DbdPort={ports['slurmdbd']}",
        "SlurmUser=root",
        f"PidFile={folder}/slurmdbd.pid",
        "CommunicationParameters=NoInAddrAny",
        "StorageType=accounting_storage/mysql",
        "StorageHost=127.0.0.1",
        f"StoragePort={ports['mariadb']}",
        "StorageUser=slurm",
        f"StoragePass={password}",
        "StorageLoc=slurm_acct",
    ]
    return "".join(f"{line}\n" for line in lines)


#: Commands of `sacctmgr` that make accounts and QOS. `tight` runs one job per user and takes two, `small` runs jobs of
#: at most ten minutes. The account `poor` has one CPU minute.
ACCOUNTS = (
    f"add cluster {CLUSTER}",
    "add qos tight set MaxJobsPerUser=1 MaxSubmitJobsPerUser=2",
    "add qos small set MaxWall=10",
    "add account lab set qos=normal,tight,small",
    "add account poor set qos=normal GrpTRESMins=cpu=1",
    "add account other set qos=normal",
    "add user root account=lab defaultaccount=lab",
    "add user root account=poor",
)
