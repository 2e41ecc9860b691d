"""One file a verb; its name is the verb."""
