"""A trial that resists its end: it and its children ignore SIGTERM, and one of them leaves its session.

`$PIDS` gets a line for each live process; with the argument ``leave`` the main process then exits.
"""

import os
import signal
import sys
import time


def stay(note, *, session=False):
    if session:
        os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with open(os.environ["PIDS"], "a") as file:
        file.write(f"{note} {os.getpid()}\n")


def wait_for(count):
    while not os.path.exists(os.environ["PIDS"]) or sum(1 for _ in open(os.environ["PIDS"])) < count:
        time.sleep(0.01)


if os.fork() == 0:
    stay("child")
    time.sleep(600)
if os.fork() == 0:
    if os.fork() == 0:
        stay("grandchild of its own session", session=True)
        os.environ.clear()
        time.sleep(600)
    os._exit(0)
stay("main")
wait_for(3)
if "leave" not in sys.argv:
    time.sleep(600)
