"""The command line: flags, verbs, exit codes. What a verb needs is imported when it runs."""
