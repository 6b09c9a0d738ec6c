"""Commands about configuration: experiment files, algorithms, platforms."""
