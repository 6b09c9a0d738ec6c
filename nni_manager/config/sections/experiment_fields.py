"""The names of the fields at the top of an experiment's config."""

from __future__ import annotations

#: Every field of the top level, in the order of the canonical form.
FIELDS = (
    "experimentName", "experimentType", "searchSpaceFile", "searchSpace", "trialCommand", "trialCodeDirectory",
    "trialConcurrency", "trialGpuNumber", "trialGpuMemory", "maxExperimentDuration", "maxTrialNumber",
    "maxTrialDuration", "maxTrialRetries", "maxSameFailures", "maxFailedTrials", "gracePeriod", "metricGrace",
    "maxLogSize", "nniManagerIp", "useAnnotation", "multiPhase", "debug", "versionCheck", "logLevel", "logCollection",
    "experimentWorkingDirectory", "tunerGpuIndices", "tunerPython", "callerEnvironment", "tuner", "assessor", "advisor",
    "trainingService", "sharedStorage", "deprecated",
)  # fmt: skip
