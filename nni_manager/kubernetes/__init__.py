"""Jobs in a Kubernetes cluster, independent of their operator.

An adapter uses `platform`, `preflight`, `fields` (its section of the config), and the description of its kind of job:
`api.cluster` (`Kind`), `jobs.pod`, `jobs.evidence`. Each package below imports only those after it:

* `observing`: `following` passes the informers' events to each job's memory. `followed_jobs` reports on jobs, chooses
  their channel, and reads pod logs.
* `exec`: results and code that go through the API server (`channel`, `stream`), and `channel_selection`.
* `jobs`: `submission` creates a job and its handle and translates refusals. `cluster_objects` and `storage` hold the
  objects that all jobs share, and whether pods reach the manager. `job_memory` is the known state of a job;
  `evidence` reads pods and events for the reasons of its end or wait. `removal` ends jobs and finds leftovers. `draft`
  is a dry run of a job.
* `api`: `cluster` is a cluster's connection, shared by all experiments. It consists of `access` (kubeconfig) and
  `client` (REST API). An `informer` caches all objects of one `Resource`. `names`: kinds, objects and labels.

The client library is imported with the first connection to a cluster.
"""
