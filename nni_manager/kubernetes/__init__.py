"""Jobs in a Kubernetes cluster, whatever operator runs them. An adapter uses `platform`, `preflight`, `fields` (its
section of the config), and what describes its kind of job: `api.cluster` (`Kind`), `jobs.pod`, `jobs.evidence`. Below,
each room imports those after it:

* `observing`: `following` hands each job's memory what the informers hear, `followed_jobs` reports on it, chooses how
  results come, and reads what pods print.
* `exec`: results and code that go through the API server (`channel`, `stream`), and `channel_selection`.
* `jobs`: `submission` makes one, gives its handle and says what a refusal is, of what `cluster_objects` and `storage`
  keep in the cluster for all of them, and of whether pods reach us; `job_memory` is what is known of it, `evidence`
  what pods and events say of its end and of its waiting, `removal` ends it and finds what is left; `draft` is a job
  that is only shown.
* `api`: `cluster` is the connection that all experiments on one share, by `access` (kubeconfig) and `client` (its REST
  API); an `informer` keeps all objects of one `Resource`; `names` are those of kinds, objects and labels.

The library that speaks to clusters is imported when a cluster is, not before.
"""
