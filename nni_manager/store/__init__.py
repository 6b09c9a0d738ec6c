"""Stored state: one SQLite database per experiment folder, and an index of all folders.

`database` runs functions on a writer thread. The functions of `experiment` (`experiments`, `trials`, `jobs`, `metrics`,
`runners`, `history`) get a connection, and read or write domain records; its `answers` build the JSON of the API.
`index` is the list of all experiments, with an `overview` of each. `nni` converts folders that NNI created
(`nni_folder`), and writes files for NNI's tools (`nni_format`, `nni_registry`).
"""
