"""One of several processes of a trial, numbered by `$RANK`. It reports like NNI's 2.x SDK, with printed lines.

Rank 0 waits for `$GATE`, rank 1 exits with code 5, all others continue. All write to their outbox, too.
"""

import json
import os
import sys
import time

rank = int(os.environ["RANK"])


def report(kind, sequence, value):
    metric = {
        "parameter_id": 0,
        "trial_job_id": os.environ["NNI_TRIAL_JOB_ID"],
        "type": kind,
        "sequence": sequence,
        "value": json.dumps(value),
    }
    print("NNISDK_MEb'" + json.dumps(metric) + "'", flush=True)


print("rank", rank, flush=True)
for step in range(3):
    print(f"{step + 1}/3 [=====>", end="")  # a progress bar shares the line
    report("PERIODICAL", step, {"default": 10 * rank + step, "word": "it's"})
with open(os.environ["NNI_OUTBOX"], "a") as outbox:
    outbox.write(json.dumps({"type": "intermediate", "value": 1000 + rank}) + "\n")
while rank > 1 or (rank == 0 and not os.path.exists(os.environ["GATE"])):
    time.sleep(0.05)
report("FINAL", 0, 100 + rank)
sys.exit(5 if rank == 1 else 0)
