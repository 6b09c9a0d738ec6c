"""A trial that writes down for itself, outside everything the manager owns, what it was given and what it reported."""

import json
import os
import sys
import time

sys.path.insert(0, os.environ["PYTHONPATH"].rsplit(":", 1)[-1])
import nni

steps, pause_s = int(sys.argv[1]), float(sys.argv[2])
# how much longer than `pause_s` the longest pause of a trial may be, in seconds; each has its own
spread_s = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
notes_file = os.environ["TRIAL_NOTES"]
attempt = os.path.basename(os.environ["NNI_SYS_DIR"])


def note(**entry):
    line = json.dumps({"attempt": attempt, "pid": os.getpid(), **entry}) + "\n"
    with open(notes_file, "a") as file:
        file.write(line)


x = nni.get_next_parameter()["x"]
note(event="started", trial=os.environ["NNI_TRIAL_JOB_ID"], x=x)
for step in range(steps):
    time.sleep(pause_s + spread_s * x)
    note(event="intermediate", value=x + step)
    nni.report_intermediate_result(x + step)
note(event="final", value=x * 2)
nni.report_final_result(x * 2)
