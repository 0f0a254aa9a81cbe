"""The first process of a container: sets up its file system and privileges, then becomes it.

This package runs by itself, before and without hekla (`python -I -S`), so it imports nothing but
built-in modules and `ctypes`: every further import would be paid at each start of a container.
"""
