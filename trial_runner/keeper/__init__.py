"""The keeper of a machine: starts jobs, reaps them, follows their outboxes, and outlives the manager.

Reading order: `serving.server` wires everything, `serving.verbs` answers requests, `jobs.beginning` starts a job or
picks it up after a keeper that died, `jobs.ending` brings it to its end, `outboxes.outbox_follower` ships what trials
report; `code` unpacks and copies. `arrival` is what runs first on a machine that is reached over SSH.
`jobs.process_tags` and `jobs.files`, and beside this folder `processes`, `outboxes` and `inotify`, are what they stand
on. One thread, no polling, standard library only, Linux 5.3 or newer.
"""
