"""Instruments of the benchmarks: a terminal that keeps time, processes and their cost, tables."""
