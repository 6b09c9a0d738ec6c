"""A fake DLWorkspace (DLTS), written from the service's sources; it shares no code with the adapter.

Sources, at microsoft/DLWorkspace 27d3a3a8:

- addresses, credentials, bodies, which errors are hidden: `src/dashboard/server/api` (`router.js`, `v2/router.js`,
  `middlewares/`, `controllers/`, `services/`, `validator/`)
- the REST service: `src/RestAPI/dlwsrestapi.py`, `src/utils/JobRestAPIUtils.py`, `job_op.py`, `MySQLDataHandler.py`
- the pod: `src/Jobs_Templete/pod.yaml.template`, `src/ClusterManager/pod_template.py` and `job.py` (mounts); only
  `envs` reaches it, between quotation marks of YAML
- process 1: `src/init-scripts/bootstrap.sh`, `init_user.sh`
- states and stops: `src/ClusterManager/job_manager.py`, `job_launcher.py` (pods are deleted without a grace period)

Guesses, as their sources are elsewhere or say nothing:

- How long a state lasts.
- What a cluster mounts beside home, job, work and data folders, which its configuration says.
- The password, which is the MD5 of the address and a secret of the service there.
- What a proxy before the dashboard answers.

A pod runs as the user of the fake, because both use the same storage. If that is not root, a login shell replaces
`runuser`.
"""
