"""Made-up runs that are seen only by the driver's used memory: those that fill the card, and others."""
