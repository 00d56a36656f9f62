"""Programs that several tests run, in every way that a program can run."""
