"""The names of scipy.stats.beta."""

from gradtape.autograd.namespaces import names_of

__getattr__, __dir__ = names_of("scipy.stats.beta")
