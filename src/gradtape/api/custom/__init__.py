"""Custom derivatives and checkpoints."""
