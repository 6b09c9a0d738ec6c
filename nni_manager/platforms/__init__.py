"""The adapters: every sub-folder is one platform and is called what users write in their config.

An adapter may import `platform_kit` and `domain`, and no other adapter.
"""
