"""The wire contract's shared code, used by both sides: standard library only, old syntax, and the manager may import
it."""
