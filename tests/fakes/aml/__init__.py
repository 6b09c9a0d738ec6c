"""A fake workspace of Azure Machine Learning. README.md lists its sources and guesses."""
