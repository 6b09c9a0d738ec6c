"""Daemons, commands, keepers, tuners and fakes, forked from a process that has imported them: 0.1 s a start, not 0.8.

A test says `Popen` of here where it would say `subprocess.Popen`. Beside the tests there is one server a worker
(`session`), which is started when it is first needed. What it forks (`child`) is a process as any other: of its own
pid, command line, environment, descriptors and exit status; its parent is the server. What cannot be had by a fork is
started as ever (`order`), and so is all of a test with the mark `true_start`, and what runs outside of pytest.
"""
