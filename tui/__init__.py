"""What shows: the Textual application, its screens and its widgets."""
