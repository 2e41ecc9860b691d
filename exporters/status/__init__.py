"""The status of a node written: the JSON document, tables, guard, advice."""
