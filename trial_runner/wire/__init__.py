"""The wire contract's shared code, imported by both sides: standard library only, Python 3.7 syntax."""
