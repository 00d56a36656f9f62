"""From LLVM modules to loaded machine code, and the caches of it in memory and on disk."""
