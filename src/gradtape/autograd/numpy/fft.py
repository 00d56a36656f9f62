"""The names of numpy.fft."""

from gradtape.autograd.namespaces import names_of

__getattr__, __dir__ = names_of("numpy.fft")
