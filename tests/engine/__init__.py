"""Tests of paths, settings, plug-ins and the other ground of the engine."""
