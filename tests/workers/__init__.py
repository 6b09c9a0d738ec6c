"""A pytest plug-in: `--workers N` runs the tests in N processes that are forked when all tests have been collected.

Thousands of tests take each process ten seconds to find. Here one process finds them (`plugin`) and puts those together
that share something (`groups`), its forks run them (`worker`), and it hands them out and shows what came of them
(`hand_out`).
"""
