"""The names of scipy.special, where those of the old scipy.misc are."""

from gradtape.autograd.namespaces import names_of

__getattr__, __dir__ = names_of("scipy.special")
