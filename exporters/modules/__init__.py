"""Memory by module written: text, JSON, figures, pages."""
