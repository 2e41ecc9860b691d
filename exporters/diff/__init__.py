"""The difference of two runs written: text and figure."""
