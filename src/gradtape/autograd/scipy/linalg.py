"""The names of scipy.linalg."""

from gradtape.autograd.namespaces import names_of

__getattr__, __dir__ = names_of("scipy.linalg")
