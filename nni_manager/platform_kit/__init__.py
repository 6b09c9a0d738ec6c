"""Everything that the adapters of platforms may use.

`contract` is what it promises, `testing` puts that to the test, `registry` finds it, `payload` describes its jobs. What
experiments share lives in `connections`; `machines` knows who has which place of a machine (`ledger`, `line`,
`placement`). For jobs at a keeper there is `keeper` (`keeper.jobs` is what adapters use), for GPUs of machines with
keepers `gpu_machines`, which says how an adapter uses them. For services that are asked over HTTP there are
`web_account`, `shared_list`, `mounted_storage` and `job_folders`; for Kubernetes there is `kubernetes`; for jobs
with a trial runner its archive, its token, and `pull`, which reads what it leaves on shared storage. `archive` packs
code.

May import `domain` and `trial_runner.protocol`; adapters are found at run time, never imported by name here.
"""
