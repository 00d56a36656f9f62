"""The names of scipy.special."""

from gradtape.autograd.namespaces import names_of

__getattr__, __dir__ = names_of("scipy.special")
