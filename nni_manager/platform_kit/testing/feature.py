"""Features that a platform, or its double in a test, may do without; a world says so by name and with a reason."""

from __future__ import annotations

from enum import StrEnum


class Feature(StrEnum):
    """A feature that a world may do without, a key of `World.absent`; all else every world has."""

    # What the platform itself has

    #: Credentials that it can refuse.
    CREDENTIALS = "credentials"
    #: A time between accepted and running that can be seen.
    PENDING = "pending"
    #: The exit code of a job that failed.
    EXIT_CODE = "exit code"
    #: Runners that post to the trial listener.
    PUSH = "push"
    #: Storage that jobs share with us, through which their results come.
    STORAGE = "storage"
    #: Results that come through the adapter (`Host.deliver`), whatever way; absent where all of them are posted.
    RESULTS = "results"
    #: Logs that the adapter itself reads, where its capabilities say that it reads files.
    LOGS = "logs"
    #: Several machines that are reached each on its own.
    MACHINES = "machines"
    #: "No room now" as an answer of `submit`; absent where the platform queues whatever it is given.
    ROOM = "room"
    #: Its own words about why a job does not run yet.
    WAIT_REASONS = "wait reasons"
    #: Jobs of several processes.
    REPLICAS = "replicas"
    #: Users can end jobs by the platform's own means.
    PORTAL = "portal"
    #: Jobs of others under the name of one of ours: names mean nothing there, or others share the account.
    FOREIGN_JOBS = "foreign jobs"
    #: A connection, login or client that several experiments share.
    SHARED_CONNECTION = "shared connection"
    #: A limit to how often that connection asks.
    PACE = "pace"

    # What can be played or looked at; absent for real services alone

    #: A count of the questions that it was asked.
    CALLS = "calls"
    #: The list of its documented states.
    STATES = "states"
    #: An outage.
    OUTAGE = "outage"
    #: A job that is removed behind our back.
    VANISH = "vanish"
    #: A platform that takes questions and does not answer.
    HANG = "hang"
    #: A submission that is taken, and its answer lost.
    LOST_ANSWERS = "lost answers"
    #: A look at what is there of an experiment.
    TRACES = "traces"
