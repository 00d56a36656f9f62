"""From graphs to loops to LLVM."""
