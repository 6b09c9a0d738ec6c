"""The adapters: every sub-folder is one platform and is called what users write in their config.

Adapters are made of `platform_kit` and the packages beside it (`machines`, `shared_storage`, `code_archive`,
`kubernetes`, `web_services`), and know no other adapter.
"""
