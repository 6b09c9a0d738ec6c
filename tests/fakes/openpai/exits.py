"""Exit codes: the runtime replaces them, and the exit spec decides about retries.

The table contains the decisive fields; the real spec describes each code in more detail.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

NEVER, ALWAYS, TO_MAX = "NEVER_RETRY", "ALWAYS_RETRY", "RETRY_TO_MAX"
USER, PLATFORM, UNKNOWN, STOP = "USER_FAILURE", "PLATFORM_FAILURE", "UNKNOWN_FAILURE", "USER_STOP"
#: Codes of a stop by a user, and of tasks that end with their job.
STOPPED, COMPLETED = -210, -220
#: Message of the runtime for an unknown code.
NO_PATTERN = 255
_BEHAVIOR = {NEVER: "PERMANENT", ALWAYS: "TRANSIENT", TO_MAX: "UNKNOWN"}
_TAIL_LINES = 15


@dataclass(frozen=True, slots=True)
class ExitSpec:
    """`codes`, `log`: patterns of the runtime; a `log` without codes matches the output of the user's command."""

    code: int
    phrase: str
    type: str
    reaction: str
    issuer: str = "USER_CONTAINER"
    codes: tuple[int, ...] = ()
    log: str = ""

    def shown(self, code: int) -> dict[str, Any]:
        return {
            "code": code,
            "phrase": self.phrase,
            "issuer": self.issuer,
            "causer": self.issuer,
            "type": self.type,
            "stage": "RUNNING",
            "behavior": _BEHAVIOR[self.reaction],
            "reaction": self.reaction,
        }


_SPECS = (
    ExitSpec(0, "Succeeded", "USER_SUCCESS", NEVER),
    ExitSpec(-100, "ConfigMapExternalDeleted", PLATFORM, ALWAYS, "PAI_FC"),
    ExitSpec(-101, "PodExternalDeleted", PLATFORM, ALWAYS, "PAI_FC"),
    ExitSpec(-120, "PodCreationTransientError", PLATFORM, ALWAYS, "PAI_FC"),
    ExitSpec(-200, "PodCreationPermanentError", USER, NEVER, "PAI_FC"),
    ExitSpec(STOPPED, "StopFrameworkRequested", STOP, NEVER, "PAI_FC"),
    ExitSpec(COMPLETED, "FrameworkAttemptCompletion", STOP, NEVER, "PAI_FC"),
    ExitSpec(-300, "PodFailedWithoutFailedContainer", UNKNOWN, TO_MAX, "PAI_FC"),
    ExitSpec(-1000, "PodEvicted", PLATFORM, ALWAYS, "PAI_K8S"),
    ExitSpec(-1001, "PodNodeLost", PLATFORM, ALWAYS, "PAI_K8S"),
    ExitSpec(-1002, "PodScheduledToInsufficientResourceNode", PLATFORM, ALWAYS, "PAI_K8S"),
    ExitSpec(-1003, "PodPreemptedForCriticalPod", PLATFORM, ALWAYS, "PAI_K8S"),
    ExitSpec(-1004, "PodDeadlineExceeded", STOP, NEVER, "PAI_K8S"),
    ExitSpec(-1005, "PodNodeAdmissionForbidden", USER, NEVER, "PAI_K8S"),
    ExitSpec(-1006, "PodNodeAdmissionUnexpectedError", PLATFORM, ALWAYS, "PAI_K8S"),
    ExitSpec(-1100, "CreateFrameworkPermanentFailed", USER, NEVER, "PAI_DB_CONTROLLER"),
    ExitSpec(-1200, "UserContainerDockerOOMKilled", USER, NEVER, "PAI_DOCKER"),
    ExitSpec(-1201, "ContainerDockerCreationError", UNKNOWN, TO_MAX, "PAI_DOCKER"),
    # Signals: those from a node or an administrator count as platform failures
    ExitSpec(130, "ContainerSigIntReceived", PLATFORM, ALWAYS, codes=(130,)),
    ExitSpec(131, "ContainerSigQuitReceived", PLATFORM, ALWAYS, codes=(131,)),
    ExitSpec(132, "ContainerSigIllReceived", USER, NEVER, codes=(132,)),
    ExitSpec(134, "ContainerSigAbrtReceived", UNKNOWN, TO_MAX, codes=(134,)),
    ExitSpec(135, "ContainerSigBusReceived", USER, NEVER, codes=(135,)),
    ExitSpec(136, "ContainerSigFpeReceived", USER, NEVER, codes=(136,)),
    ExitSpec(137, "ContainerSigKillReceived", PLATFORM, ALWAYS, codes=(137,)),
    ExitSpec(139, "ContainerSigSegvReceived", UNKNOWN, TO_MAX, codes=(139,)),
    ExitSpec(141, "ContainerSigPipeReceived", USER, NEVER, codes=(141,)),
    ExitSpec(143, "ContainerSigTermReceived", PLATFORM, ALWAYS, codes=(143,)),
    # Output of the user's command
    ExitSpec(220, "UserCommandExitWithError", USER, NEVER, codes=(127,), log=r"(?i)command not found"),
    ExitSpec(221, "ContainerTensorflowOOMKilled", USER, NEVER, log=r"(?i)ran out of memory trying to allocate"),
    ExitSpec(222, "ContainerMPISegvFault", USER, NEVER, log=r"(?mi)Signal code: Address not mapped.*"),
    ExitSpec(223, "ContainerCudaUncorrectableECCError", PLATFORM, ALWAYS, log=r"(?mi)CUDA_ERROR_ECC_UNCORRECTABLE.*"),
    ExitSpec(224, "ContainerCudaVersionMismatch", USER, NEVER, log=r"(?i)cuda driver version is insufficient for"),
    # as in the spec: its parentheses form a group, so CUDA's own text does not match
    ExitSpec(226, "ContainerCudaOOMKilled", USER, NEVER, log=r"(?i)cuda runtime error (2) : out of memory"),
    ExitSpec(228, "ContainerIncorrectParameterError", USER, NEVER, log=r"(?i)unknown option|invalid argument:"),
    ExitSpec(
        230, "ContainerInvalidSavePath", USER, NEVER, log=r"(?i)ValueError: Restore called with invalid save path"
    ),
    ExitSpec(
        231,
        "ContainerSyntaxError",
        USER,
        NEVER,
        log=r"(?mi)syntaxerror: invalid syntax|unpicklingerror|attributeerror:.*has no attribute"
        r"|nameerror: name.* is not defined",
    ),
    ExitSpec(232, "ContainerImportError", USER, NEVER, log=r"(?mi)importerror:.*"),
    ExitSpec(233, "ContainerIndexOutOfRange", USER, NEVER, log=r"(?mi)indexerror:.*index out of range"),
    ExitSpec(234, "ContainerSigvFault", USER, NEVER, log=r"(?i)segmentation fault"),
    ExitSpec(235, "ContainerEngineCoreDump", USER, NEVER, log=r"(?i)core dumped"),
    ExitSpec(250, "FrameworkBarrierTransientFailed", PLATFORM, ALWAYS, "PAI_RUNTIME"),
    ExitSpec(252, "FrameworkBarrierPermanentFailed", PLATFORM, NEVER, "PAI_RUNTIME"),
    ExitSpec(253, "ContainerPortConflict", PLATFORM, ALWAYS, "PAI_RUNTIME"),
    ExitSpec(254, "ContainerImageNotExists", USER, NEVER, "PAI_RUNTIME"),
    ExitSpec(NO_PATTERN, "PAIRuntimeUnknownFailed", UNKNOWN, TO_MAX, "PAI_RUNTIME"),
)
_BY_CODE = {spec.code: spec for spec in _SPECS}
_POSITIVE = ExitSpec(256, "PAIRuntimeExitAbnormally", PLATFORM, TO_MAX, "PAI_RUNTIME")
_NEGATIVE = ExitSpec(-8000, "ContainerUndefinedNegativeExitCode", UNKNOWN, TO_MAX, "PAI_FC")


def spec_of(code: int) -> ExitSpec:
    return _BY_CODE.get(code) or (_POSITIVE if code > 0 else _NEGATIVE)


def replaced(code: int, log: str) -> tuple[int, dict[str, Any] | None]:
    """The container's code for the user's code, and the runtime's message; None after success.

    The first spec whose patterns all match; without a match 255 for any code. `log`: output of the command.
    """
    if code == 0:
        return 0, None
    for spec in _SPECS:
        match = re.search(spec.log, log) if spec.log else None
        if (spec.codes or spec.log) and code in (spec.codes or (code,)) and (match or not spec.log):
            matched = {"matchedUserLogString": match[0]} if match else {}
            return spec.code, {"exitCode": spec.code, "originUserExitCode": code, **matched, **_logs(log)}
    return NO_PATTERN, {"exitCode": NO_PATTERN, "originUserExitCode": code, **_logs(log)}


def _logs(log: str) -> dict[str, Any]:
    return {"errorLogs": {"platform": "", "user": "\n".join(log.split("\n")[-_TAIL_LINES:])}, "name": "app"}
