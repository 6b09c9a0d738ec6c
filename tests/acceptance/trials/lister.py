"""A trial that lists its code folder: ``lister.py NOTES``, with a new file in NOTES for each trial."""

import json
import os
import sys

found = {}
for folder, folders, files in os.walk("."):
    for name in [*folders, *files]:
        path = os.path.join(folder, name)
        if os.path.islink(path):
            entry = "-> " + os.readlink(path)
        elif os.path.isdir(path):
            entry = "folder"
        else:
            with open(path, "rb") as file:
                entry = ("x " if os.access(path, os.X_OK) else "") + str(len(file.read()))
        found[os.fsencode(os.path.relpath(path)).hex()] = entry
with open(os.path.join(sys.argv[1], os.environ["NNI_TRIAL_JOB_ID"]), "w") as notes:
    json.dump({"found": found, "folder": os.getcwd()}, notes)
with open(os.environ["NNI_OUTBOX"], "a") as outbox:
    outbox.write(json.dumps({"type": "final", "value": len(found)}) + "\n")
