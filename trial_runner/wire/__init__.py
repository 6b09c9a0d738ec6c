"""What both sides of the wire share: standard library only, old syntax, and the manager may import it."""
