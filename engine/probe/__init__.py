"""The probe: reports what only the training process knows, without ever disturbing it.

Pure standard library for Python 3.9 and newer, loaded by path into the interpreter that trains, under the
name `vramscope_probe`; vramscope itself need not be installed there.
"""
