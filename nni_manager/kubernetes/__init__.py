"""Jobs in a Kubernetes cluster, whatever operator runs them.

* What an adapter uses: `platform` is the adapter of any kind of job (`kind` describes one, `pod` makes its pods,
  `names` its names and labels, `fields` and `first_format` its section of the config); `evidence` is what pods and
  events say of a job's end and of its waiting.
* The cluster: `cluster` is the connection that all experiments on one share, by `access` (kubeconfig) and `client`
  (its REST API); an `informer` keeps all objects of one `resource`; `preflight` asks before anything is made, shows it
  the `draft` of a job, and `refusals` says in words what the API server refused; `legal_names` are what it takes.
* Jobs: `submission` makes one, of what `service` and `shared_objects` keep in the cluster for all of them; `following`
  hands each `job_memory` what the informers hear.
* Results and code: `reading` chooses between shared `storage` (whose key may come by `azure`) and `exec_channel`,
  which goes through the API server by `exec`; `reach` is whether pods reach us, as they found out by their `choice`;
  `logs` reads what pods print.

The library that speaks to clusters is imported when a cluster is, not before.
"""
