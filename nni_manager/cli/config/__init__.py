"""Commands about what experiments are configured with: files, algorithms, platforms."""
