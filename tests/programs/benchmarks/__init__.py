"""Programs of `benchmarks/`, and our entry for GradBench."""
