"""What is written of a recording: CSV, Parquet, metrics, figures, status."""
