"""Rolling up loops that Python unrolled while a recording was made."""
