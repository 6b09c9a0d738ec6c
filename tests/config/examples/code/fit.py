"""What the example configs run; loading a config never executes it."""

print("score")
