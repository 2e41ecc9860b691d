"""The simulated device: a user's own script runs on the CPU while its tensors live on a modelled card.

Loaded by path into the interpreter that trains, under the name `vramscope_simulation`. Only here, and only
below this file, torch is imported.
"""
