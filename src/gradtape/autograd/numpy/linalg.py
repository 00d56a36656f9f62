"""The names of numpy.linalg."""

from gradtape.autograd.namespaces import names_of

__getattr__, __dir__ = names_of("numpy.linalg")
