"""Where state lives: one SQLite database per experiment folder, and an index of all folders.

`database` runs functions on a writer thread; those of `experiment` (`experiments`, `trials`, `jobs`, `metrics`,
`runners`, `history`) take a connection and speak domain records, and its `answers` are what is shown of them. `index`
has the list of all experiments, with an `overview` of each. `nni` takes over folders that NNI made (`nni_folder`), and
writes for NNI's tools (`nni_format`, `nni_registry`). Imports: domain.
"""
