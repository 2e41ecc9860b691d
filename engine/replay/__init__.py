"""Playing what was recorded in the screens of the present: to any moment, at any speed, with its verdicts."""
