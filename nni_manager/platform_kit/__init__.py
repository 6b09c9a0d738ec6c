"""The interface between the scheduler and adapters of training services, ours and third parties'.

`contract` is the interface, `testing` its test suite, `registry` finds adapters, `payload` has the files and variables
that jobs get, including the trial runner as one file, `section_model` the config section, in both of NNI's formats.
`connections` holds what experiments share of a machine, account or cluster.

Adapters are built from the packages next to this one: `machines`, `shared_storage`, `code_archive`, `kubernetes`,
`web_services`. Adapters are found at run time, never imported by name here.
"""
