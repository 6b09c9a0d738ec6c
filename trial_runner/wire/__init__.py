"""The wire contract's shared code, imported by both sides: standard library only, old syntax."""
