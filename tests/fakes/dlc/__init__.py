"""A stand-in for Alibaba's PAI-DLC, API 2020-12-03, whose jobs really run. See README.md."""
