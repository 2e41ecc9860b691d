"""Pages that open in any browser, each one file: no network, no library, nothing loaded from elsewhere."""
