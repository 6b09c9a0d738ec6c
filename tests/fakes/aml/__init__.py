"""A stand-in for an Azure Machine Learning workspace with its storage and tokens, whose jobs run. See README.md."""
