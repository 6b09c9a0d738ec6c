"""What a training service is, for adapters of ours and of third parties.

`contract` is what an adapter promises, `testing` puts that to the test, `registry` finds it, `payload` is what its jobs
are given, the trial runner as one file among it, `section_model` its section of the config, in both of NNI's formats.
What experiments share of a machine, account or cluster lives in `connections`.

What adapters are made of stands beside: `machines`, `shared_storage`, `code_archive`, `kubernetes`, `web_services`.
Adapters are found at run time, never imported by name here.
"""
