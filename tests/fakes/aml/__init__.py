"""A stand-in for a workspace of Azure Machine Learning. README.md: which sources it follows, and what it guesses."""
