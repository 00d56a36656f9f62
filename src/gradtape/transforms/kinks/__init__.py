"""Functions whose chain rule multiplies an infinite slope with zero, and which have a derivative, or a convention for it."""
