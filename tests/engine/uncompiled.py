"""What a script begins with that trains, compiles nothing, and runs in a process of its own."""

UNCOMPILED = """
import sys, types
compiler = sys.modules["torch._dynamo"] = types.ModuleType("torch._dynamo")
compiler.graph_break = lambda *_, **__: None
compiler.disable = lambda function, *_, **__: function
"""
"""Stands for PyTorch's compiler, which every optimizer loads only to be left out of what it compiles.

To load it takes as long as to load PyTorch.
"""
