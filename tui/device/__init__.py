"""The screen of one device."""
