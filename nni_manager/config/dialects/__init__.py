"""The formats that a config may have: ours, NNI's second, NNI's first."""
