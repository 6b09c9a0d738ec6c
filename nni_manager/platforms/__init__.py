"""The adapters: every sub-folder is one platform, named as in the config.

Adapters use `platform_kit` and the packages next to this one (`machines`, `shared_storage`, `code_archive`,
`kubernetes`, `web_services`). They do not import each other.
"""
