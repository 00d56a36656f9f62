"""Distribution functions of probabilities, their inverses, and the incomplete functions that they are made of."""
