"""`python3 -m trial_runner`, and the entry of the archive `runner.pyz`: runs one trial's command in a container."""

import os
import signal
import sys
from contextlib import ExitStack, suppress
from typing import Dict, List, NamedTuple, Optional

from trial_runner import processes, protocol, python_version
from trial_runner.outboxes import Outboxes
from trial_runner.runner import exec_channel, preparation, settings
from trial_runner.runner.client import SHORT_CONNECT_S, Client, Denied, Fenced, Refused, Unavailable
from trial_runner.runner.command import Claim, Evidence, Left
from trial_runner.runner.ending import EndingNotice, forget_earlier
from trial_runner.runner.preparation import Preparation, registration
from trial_runner.runner.run import Run
from trial_runner.runner.settings import AUTO, BadSetting, Settings
from trial_runner.wire import removal
from trial_runner.wire.code_archive import BadArchive

#: Exit code of runners that do not reach the manager.
_UNHEARD = (protocol.EXIT_UNREACHABLE, protocol.EXIT_DENIED)


class _Failure(Exception):
    """The command was not started."""

    def __init__(self, exit_code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code


class _Ready(NamedTuple):
    """`client`: None when the manager reads the folder. If it does or may, there is a claim on it, unless this process
    only forwards logs."""

    channel: str
    client: Optional[Client]
    stored: Dict[str, int]
    claim: Optional[Claim] = None


def main() -> int:
    """The command's exit code, 128 + the signal that ended it, or one of `protocol.EXIT_…`."""
    try:
        return _main()
    finally:
        if os.environ.get(protocol.ENV_TEMPORARY):
            removal.remove(os.environ[protocol.ENV_TEMPORARY])


def _main() -> int:
    notice = EndingNotice()
    notice.listen()
    python_version.check()
    settings.settle_replica(os.environ)
    if sys.argv[1:2]:
        return exec_channel.main(sys.argv[1:])
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)  # signals without a handler do not end process 1 of a container
    try:
        token = settings.take_credential(os.environ) if os.environ.get(protocol.ENV_TOKEN) else None
        return _run(settings.read(os.environ), token, notice)
    except BadSetting as error:
        _say(str(error))
        return protocol.EXIT_USAGE
    except _Failure as failure:
        _say(str(failure))
        return failure.exit_code


def _clients(options: Settings, token: settings.Credential, container: str) -> List[Client]:
    """A client of each address. If another channel is possible, connecting has a short time limit."""
    has_choice = options.channel == protocol.PUSH_OR_EXEC or len(options.manager_urls) > 1
    patience = {"connect_s": SHORT_CONNECT_S} if has_choice else {}
    try:
        return [Client(url, token, container, options.manager_ca, **patience) for url in options.manager_urls]
    except (OSError, ValueError) as error:  # includes TLS errors
        sentence = "{} does not contain a valid certificate ({}).".format(protocol.ENV_MANAGER_CA, error)
        raise _Failure(protocol.EXIT_USAGE, sentence) from None


def _run(options: Settings, token: Optional[settings.Credential], notice: EndingNotice) -> int:
    with ExitStack() as clean_up:
        _make_folders(options)
        container = settings.container_of(os.environ) if options.is_reporter else ""
        clients = _clients(options, _required(token), container) if options.manager_urls else []
        try:
            ready = _prepare(options, clients, container)
            if os.path.lexists(os.path.join(options.system_dir, protocol.STOP_FILE)):
                raise _stopped(options)
            options = options._replace(channel=ready.channel)
            stand_in = preparation.provide(clean_up, options.system_dir)
            _become_subreaper()
            run = Run(options, ready.client, ready.stored, container, ready.claim, notice, _say)
            return run.run(preparation.of_command(os.environ, options, stand_in))
        except _Failure as error:
            failure = error
        except BadArchive as error:
            failure = _Failure(protocol.EXIT_BAD_CODE, str(error))
        except (OSError, ValueError) as error:
            failure = _Failure(protocol.EXIT_CANNOT_START, "The command could not start: {}.".format(error))
        _tell(failure, options, clients, container)
        raise failure


def _become_subreaper() -> None:
    """Becomes the subreaper. Not needed for process 1; if it fails, the command can run anyway."""
    try:
        processes.become_subreaper()
    except OSError as error:
        if os.getpid() != 1:
            _say("Processes that leave the command's session may outlive it ({}).".format(error.strerror))


def _prepare(options: Settings, clients: List[Client], container: str) -> _Ready:
    """Raises _Failure, BadArchive and OSError."""
    if not clients:
        return _let_be_read(options, container)
    try:
        return _fetch(options, clients, container)
    except Fenced as error:
        # the value of processes that do not report was decided without them: no reason to fail the job
        code = protocol.EXIT_FENCED if options.is_reporter else 0
        raise _Failure(code, "The manager has closed this attempt: {}".format(error)) from error
    except Refused as error:
        code = protocol.EXIT_VERSION_REFUSED if error.status == 409 else protocol.EXIT_USAGE
        raise _Failure(code, str(error)) from error
    except Unavailable as error:
        code = protocol.EXIT_DENIED if isinstance(error, Denied) else protocol.EXIT_UNREACHABLE
        raise _Failure(code, "The command was not started: {}.".format(error)) from error


def _fetch(options: Settings, clients: List[Client], container: str) -> _Ready:
    preparation = Preparation(options, clients, container, _outboxes(options), _say)
    try:
        _choose(options, "")
        exec_channel.open_anew(options.system_dir)
        preparation.register()
    except Unavailable as error:
        if isinstance(error, Denied) or not _can_be_read(options):
            raise
        _say("{}; results stay in {}, where the manager reads them".format(error, options.system_dir))
        clients.clear()
        return _let_be_read(options, container)
    _choose(options, protocol.PUSH)
    if options.is_code_fetched:
        preparation.fetch_code()
    preparation.fetch_parameters()
    if preparation.must_stop():
        raise _stopped(options)
    if not options.is_reporter:
        return _Ready(protocol.PUSH, clients[0], {})
    stored, claim = preparation.stored_outboxes(), None
    if options.channel == protocol.PUSH_OR_EXEC:  # the manager can read in this container if posts stop arriving
        claim = _claim(options, protocol.PUSH, container)
    return _Ready(protocol.PUSH, clients[0], stored, claim)


def _stopped(options: Settings) -> _Failure:
    code = protocol.EXIT_STOPPED if options.is_reporter else 0
    return _Failure(code, "The job was cancelled before its command started.")


def _claim(options: Settings, channel: str, container: str) -> Claim:
    claim = Claim(options.system_dir, container)
    claim.make(registration(channel, container, _outboxes(options)))
    return claim


def _choose(options: Settings, channel: str) -> None:
    if options.channel == protocol.PUSH_OR_EXEC:
        exec_channel.choose(options.system_dir, channel)


def _can_be_read(options: Settings) -> bool:
    """Waits for the parameters, which the manager or the platform puts there."""
    if options.channel == protocol.PUSH_OR_EXEC:
        return True
    return options.channel == AUTO and os.path.exists(os.path.join(options.system_dir, protocol.PARAMETER_FILE))


def _let_be_read(options: Settings, container: str) -> _Ready:
    channel = protocol.EXEC if options.channel in (protocol.EXEC, protocol.PUSH_OR_EXEC) else protocol.PULL
    if channel == protocol.EXEC:
        _choose(options, protocol.EXEC)
        exec_channel.begin(options.system_dir, options.code_dir, options.drain_s)
    else:
        preparation.place_stored(os.environ, options.system_dir, options.code_dir)
    for path in (os.path.join(options.system_dir, protocol.PARAMETER_FILE), options.code_dir):
        if not os.path.exists(path):
            code = protocol.EXIT_UNREACHABLE if channel == protocol.EXEC else protocol.EXIT_USAGE
            raise _Failure(code, _NOT_THERE[channel].format(path, protocol.ENV_CHANNEL))
    if not options.is_reporter:
        return _Ready(channel, None, {})
    return _Ready(channel, None, {}, _claim(options, channel, container))


#: What may be missing on each channel.
_NOT_THERE = {
    protocol.PULL: "{} does not exist, and this channel does not ask the manager for it: mount the storage that it"
    " shares with this job, or set {} to push.",
    protocol.EXEC: "The manager did not write {} in time: check that it may run commands in this container.",
}


def _outboxes(options: Settings) -> Dict[str, int]:
    """Sizes of outboxes that an earlier container of this attempt left here; their last lines are ended."""
    if not options.is_reporter:
        return {}
    left = Outboxes(options.system_dir, _say)
    left.end_lines()
    return left.sizes()


#: Message about a folder that cannot be created.
_CLOSED = (
    "The folder {} cannot be created ({}): let user {} write on the storage that is mounted there{}, or set {} to a "
    "writable folder."
)
_SQUASHED = " (an NFS export with root_squash does not let root write)"


def _make_folders(options: Settings) -> None:
    try:
        os.makedirs(os.path.join(options.system_dir, protocol.OUTBOX_FOLDER), exist_ok=True)
        os.makedirs(options.output_dir, exist_ok=True)
        os.makedirs(options.checkpoint_dir, exist_ok=True)
        forget_earlier(options.system_dir)
    except OSError as error:
        sentence = _CLOSED.format(
            error.filename,
            error.strerror,
            os.geteuid(),
            _SQUASHED if os.geteuid() == 0 else "",
            protocol.ENV_SYSTEM_DIR,
        )
        raise _Failure(protocol.EXIT_CANNOT_START, sentence) from error


def _required(token: Optional[settings.Credential]) -> settings.Credential:
    if token is None:
        raise BadSetting("{} is not set: use the token that the manager created.".format(protocol.ENV_TOKEN))
    return token


def _tell(failure: _Failure, options: Settings, clients: List[Client], container: str) -> None:
    """Reports the failure once; the exit code says it, too. The manager's own refusals are not reported, as the
    folder may contain the report of an earlier container."""
    if failure.exit_code in (protocol.EXIT_FENCED, protocol.EXIT_VERSION_REFUSED):
        return
    evidence = Evidence.not_started(failure.exit_code, str(failure))
    evidence.write(options, Left(container, {}, {}, []), _say)
    if not clients or not options.is_reporter or failure.exit_code in _UNHEARD:
        return
    try:
        clients[0].post("status", evidence.status({}, []))
    except (Unavailable, Refused, Fenced) as error:
        _say("The manager did not receive the report: {}".format(error))


def _say(sentence: str) -> None:
    """Prints a sentence where the platform collects the output of its jobs."""
    with suppress(OSError):  # the reader has gone
        os.write(2, "trial_runner: {}\n".format(sentence).encode("utf-8", "backslashreplace"))


def _leave(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
