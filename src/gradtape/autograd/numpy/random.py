"""The names of numpy.random."""

from gradtape.autograd.namespaces import names_of

__getattr__, __dir__ = names_of("numpy.random")
