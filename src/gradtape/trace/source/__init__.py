"""Source locations: where in the user's code an operation stands, and what is active there."""
