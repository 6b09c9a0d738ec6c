"""Jobs in a Kubernetes cluster, whatever operator runs them. An adapter uses `platform`, `preflight`, `fields` (its
section of the config), and what describes its kind of job: `api.kind`, `jobs.pod`, `jobs.evidence`. Below, each room
imports those after it:

* `observing`: `following` hands each job's memory what the informers hear, `reading` chooses how results come, `logs`
  reads what pods print.
* `exec`: results and code that go through the API server (`channel`, `attempt`, `stream`), and `channel_selection`.
* `jobs`: `submission` makes one, of what `cluster_objects`, `shared_objects` and `storage` keep in the cluster for all
  of them; `job_memory` is what is known of it, `evidence` what pods and events say of its end and of its waiting,
  `removal` and `left_objects` end it; `draft` is a job that is only shown, `refusals` what the API server refused.
* `api`: `cluster` is the connection that all experiments on one share, by `access` (kubeconfig) and `client` (its REST
  API); an `informer` keeps all objects of one `resource`; `connectivity` is whether pods reach us; `names`.

The library that speaks to clusters is imported when a cluster is, not before.
"""
