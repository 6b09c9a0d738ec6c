"""Where state lives: one SQLite database per experiment folder, and an index of all folders.

`database` runs functions on a writer thread; `experiments`, `trials`, `jobs`, `metrics`, `runners` and `history` are
those functions: they take a connection and speak domain records; `stored_state` reads all that a turn goes by.
`overview`, `answers` and `nni_answers` are what is shown of them. Folders that NNI made are taken over by
`nni_history`, `nni_records`, `nni_glance` and `nni_folder`; for NNI's tools `nni_format` and `nni_registry` write.
Imports: domain.
"""
