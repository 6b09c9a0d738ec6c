"""`python -m trial_runner.keeper`, and the entry of the archive `keeper.pyz`."""

import argparse
import os
import sys
from typing import List, Optional

from trial_runner.keeper.serving.listener import MAX_PATH_BYTES
from trial_runner.keeper.serving.serve import default_socket_path, serve


def main(arguments: Optional[List[str]] = None) -> int:
    """Exit code 0: served until not needed, another keeper does, or the peer hung up; 1: could not; 2: misuse."""
    options = _parser().parse_args(arguments)
    directory = os.path.abspath(options.directory)
    socket_path = os.path.abspath(options.socket or default_socket_path(directory))
    if len(os.fsencode(socket_path)) > MAX_PATH_BYTES:
        return _fail("The socket's path {} is too long: give one of at most 107 bytes.".format(socket_path))
    try:
        if options.verb == "attach":
            from trial_runner.keeper.serving.attach import (
                attach,  # brings threads and subprocesses, which serving needs not
            )

            return attach(directory, socket_path)
        return serve(directory, socket_path, options.ready_fd)
    except OSError as error:
        place = " ({})".format(error.filename) if error.filename else ""
        return _fail("The keeper of {} cannot run: {}{}.".format(directory, error.strerror or error, place))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="keeper", description="Starts the jobs of a machine and looks after them.")
    verbs = parser.add_subparsers(dest="verb", metavar="serve|attach")
    verbs.required = True
    serving = verbs.add_parser("serve", help="serve one directory until neither a job nor a connection is left")
    attaching = verbs.add_parser("attach", help="bridge standard input and output to a keeper, starting one if need be")
    for verb in (serving, attaching):
        verb.add_argument("--directory", required=True, help="where this keeper's files are")
        verb.add_argument("--socket", help="path of its socket; by default keeper.sock in the directory")
    serving.add_argument("--ready-fd", type=int, help="descriptor to write a line to when it listens")
    return parser


def _fail(sentence: str) -> int:
    print(sentence, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
