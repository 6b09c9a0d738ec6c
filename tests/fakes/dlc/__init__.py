"""A fake of Alibaba's PAI-DLC, API 2020-12-03, with jobs that really run. See README.md."""
