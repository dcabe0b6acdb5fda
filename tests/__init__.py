"""A package, so that processes which tests start find it before any other `tests`.

A library that is installed may bring a folder of this name, too.
"""
