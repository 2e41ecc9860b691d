"""Plans written: reports, tables, figures, launch files."""
