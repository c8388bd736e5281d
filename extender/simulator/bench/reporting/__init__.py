"""What the bench reports: figures, runs as JSON, tables, and comparisons with bounds and earlier runs."""
