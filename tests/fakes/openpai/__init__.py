"""A fake OpenPAI cluster, written from the service's sources; it shares no code with the adapter.

Sources, at microsoft/pai a95d9420e (`src/rest-server/src`) and microsoft/openpai-runtime 59ec6d1:

- addresses and order of checks: `routes/`, `config/express.js`
- limits: `config/rate-limit.js`, with the numbers of the deployment's `config/rest-server.yaml`
- credentials: `middlewares/token.js`, `controllers/v2/token.js`, `config/token.js`, `controllers/v2/user.js`
- job configs: `config/v2/protocol.js`, `middlewares/v2/protocol.js`, `utils/protocolSecret.js`
- jobs, storage, retry policy, environment: `models/v2/job/k8s.js`, `runtime-env.js`, `models/v2/storage.js`
- lists, details, states: `controllers/v2/job.js`, `models/v2/utils/frameworkConverter.js`
- secrets in commands: `src/common/utils.py` of the runtime, by pystache, which escapes for HTML
- process 1 and replacement of codes: `src/runtime`, `src/runtime.d/runtime_entry.sh`, `user.sh`,
  `go/pkg/aggregator/error_aggregator.go`, and `src/k8s-job-exit-spec/config/k8s-job-exit-spec.yaml`
- the cluster's own storages (only NFS): `models/v2/storage.js`
- mounts by containers: `generateTaskRole` of `models/v2/job/k8s.js`; see `own_mounts`

Guesses, as their sources are elsewhere or say nothing:

- How FrameworkController retries (transient: always; unknown: up to `jobRetryCount`; permanent: never), and the states
  between two attempts.
- How long a state lasts, and the 30 seconds between stop and kill, which are Kubernetes' own.
- What a quota answers (the sources have only its name), and what a gateway answers in an outage.
- The phrase of an evicted task, `PodEvicted`; its code is -1000.
- The words in which a job's text is refused.
- That a cluster lets containers mount: the server gives each the right (SYS_ADMIN); where something on the way takes it
  away, a mount is not permitted.
- The images: the fake's have `nfs-common` and `blobfuse2`, most have neither. Their user is root.
- The capabilities that the server does not name: the default of container engines.
- That `blobfuse2` waits for a server that does not answer, and what it says without the right to mount.
"""
