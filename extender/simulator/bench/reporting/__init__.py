"""The reports of the bench: figures, results as JSON, tables, and comparisons with bounds and earlier runs."""
