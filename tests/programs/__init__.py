"""Whole programs: examples, notebooks, documentation, benchmarks, and Python loops as users write them."""
