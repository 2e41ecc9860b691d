"""Runs training jobs of real packages in every way that vramscope knows, and writes the table."""
