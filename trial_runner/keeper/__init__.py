"""The keeper of a machine: starts jobs, reaps them, follows their outboxes, and outlives the manager.

Reading order: `server` wires everything, `verbs` answers requests, `spawn` starts a job, `ending` brings it to its end,
`outbox_follower` ships what trials report, `adoption` picks up after a keeper that died. `process_tags` and `files`,
and beside this folder `processes`, `outboxes` and `inotify`, are what they stand on. One thread, no polling, standard
library only, Linux 5.3 or newer.
"""
