"""Compiling ahead of time: lowered and compiled functions, and files of other languages and for other processes."""
