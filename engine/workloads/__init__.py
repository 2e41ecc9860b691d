"""Real training scripts that vramscope runs itself: for its demonstration, its tests and its benchmarks.

Each is a script of its own, run in the interpreter that has torch, and says in its `--help` what it does.
"""
