"""The names of scipy.integrate."""

from gradtape.autograd.namespaces import names_of

__getattr__, __dir__ = names_of("scipy.integrate")
