"""Playing recordings in the live screens: from any moment, at any speed, with verdicts."""
