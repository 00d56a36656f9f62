"""Resident routines: code that kernels call and that stays in memory."""
