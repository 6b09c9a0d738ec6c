"""How well and how fast the tuners search: `make bench-tuners`. A smoke test of it runs with the tests."""
