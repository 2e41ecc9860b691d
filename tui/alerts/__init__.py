"""The screen of alerts."""
