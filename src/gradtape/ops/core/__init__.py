"""The rows: one file per family."""
