"""Counts, with a checkpoint at each step: a line of the file `steps` is both the step and its checkpoint.

Arguments: number of steps; a file for notes; the steps after which an attempt that started earlier waits for its loss.
"""

import json
import os
import sys
import time

until, notes, waits = int(sys.argv[1]), sys.argv[2], [int(text) for text in sys.argv[3].split(",")]
steps = os.path.join(os.environ["NNI_CHECKPOINT_DIR"], "steps")


def note(**entry):
    with open(notes, "a") as file:
        file.write(json.dumps({"trial": os.environ["NNI_TRIAL_JOB_ID"], "pid": os.getpid(), **entry}) + "\n")


def report(kind, value):
    with open(os.environ["NNI_OUTBOX"], "a") as outbox:
        outbox.write(json.dumps({"type": kind, "value": value}) + "\n")


begun = 0
if os.path.exists(steps):
    with open(steps) as file:
        begun = len(file.readlines())
note(event="started", step=begun)
for step in range(begun + 1, until + 1):
    with open(steps, "a") as file:
        file.write(f"{step}\n")
    report("intermediate", step)
    if step in waits:
        note(event="waits", step=step)
        time.sleep(1000)
report("final", until)
