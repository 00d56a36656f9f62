"""The class of traced arrays."""

from gradtape.autograd.tracer import Box as Box


class ArrayBox(Box):
    """The class of traced arrays, for instance checks."""
