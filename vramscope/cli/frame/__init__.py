"""What all verbs share: flags, settings, output, progress, errors and how a command ends."""
