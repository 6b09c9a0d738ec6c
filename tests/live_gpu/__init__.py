"""The GPU ledger's cases on real cards: run `make live-gpu` on a machine with GPUs."""
