"""Readers of files that others wrote, one room or file a format.

What cannot be read raises `InputFileError`, whose text says where, what was expected and what to do.
"""
