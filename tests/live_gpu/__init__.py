"""The ledger's cases on real cards: `make live-gpu`, on whatever machine has some."""
