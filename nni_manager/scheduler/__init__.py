"""The heart: one loop per experiment, woken by events: snapshot → plan → record → act.

`plan` decides and is pure; `turn` runs snapshot, plan and record in one transaction; `experiment_loop` acts afterwards.
Only this package changes a trial's status. Imports: config and below.
"""
