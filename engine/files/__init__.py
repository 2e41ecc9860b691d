"""Readers of files that other tools wrote: tolerant of dialects, strict about figures."""
