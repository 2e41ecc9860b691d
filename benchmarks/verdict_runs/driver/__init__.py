"""Made-up runs of which only the driver's used memory is seen: those that fill the card, and others."""
