"""A trial that notes and then reports numbers in order: ``numbered.py NOTES STEPS PAUSE_S``.

Every fourth fails with exit code 3. It needs no SDK, and only variables that every trial has.
"""

import json
import os
import sys
import time

notes, steps, pause_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
job = os.environ["NNI_MANAGER_JOB"].split(":")[0]
exit_code = 3 if int(os.environ["NNI_TRIAL_SEQ_ID"]) % 4 == 3 else 0


def note(**entry):
    with open(os.path.join(notes, job), "a") as file:
        file.write(json.dumps(entry) + "\n")


def report(kind, value):
    note(type=kind, value=value)
    print(kind, value)
    with open(os.environ["NNI_OUTBOX"], "a") as outbox:
        outbox.write(json.dumps({"type": kind, "value": value}) + "\n")


with open(os.path.join(os.environ["NNI_SYS_DIR"], "parameter.cfg")) as file:
    x = json.load(file)["parameters"]["x"]
note(event="started", x=x, environment=sorted(os.environ), folder=os.getcwd())
for step in range(steps):
    time.sleep(pause_s)
    report("intermediate", step)
report("final", x)
note(event="ended", exit_code=exit_code)
sys.exit(exit_code)
