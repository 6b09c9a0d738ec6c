"""The experiment manager: one daemon that owns hyper-parameter experiments.

Read in this order: `domain` (the words), `config` (text → experiment), `store` (where state lives), `scheduler` (the
heart), `platform_kit` (what a training service is), `machines`, `shared_storage`, `code_archive`, `kubernetes` and
`web_services` (what adapters are made of), `platforms` (the adapters),
`tuners` and `assessors` (what to try and what to give up),
`api`, `web`, `client` and `cli` (how people reach it), `app` (how it is put together).
"""

from trial_runner.protocol import VERSION

__version__ = VERSION
