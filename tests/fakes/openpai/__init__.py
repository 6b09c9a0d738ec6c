"""An OpenPAI cluster: the rest-server's contract over HTTP, and jobs that really run.

`protocol` judges and renders jobs as the server does, `limits` counts calls, `cluster` keeps jobs and what becomes of
them, `server` answers. What the vendor has no word for is below ``/fake``: see `server`.
"""
