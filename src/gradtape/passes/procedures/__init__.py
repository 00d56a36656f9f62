"""Procedure to procedure: passes that concern loops and the arrays between them."""
