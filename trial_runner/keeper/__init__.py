"""The keeper of a machine: starts jobs, reaps them, follows their outboxes, and outlives the manager.

Reading order: `serving.server` connects the parts, `serving.verbs` answers requests, `jobs.beginning` starts a job or
adopts it from a dead keeper, `jobs.ending` handles its end, `outboxes.outbox_follower` sends trials' results; `code`
unpacks and copies. `arrival` runs first on a machine that is reached over SSH. `jobs.process_tags`, `jobs.files` and,
next to this folder, `processes`, `outboxes` and `inotify` are the base. One thread, no polling, standard library only,
Linux 5.3 or newer.
"""
