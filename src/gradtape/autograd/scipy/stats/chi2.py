"""The names of scipy.stats.chi2."""

from gradtape.autograd.namespaces import names_of

__getattr__, __dir__ = names_of("scipy.stats.chi2")
