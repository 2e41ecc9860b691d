"""Drawing to the terminal: the only place that touches private parts of Textual."""
