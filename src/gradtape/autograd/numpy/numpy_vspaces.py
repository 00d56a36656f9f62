"""The vector spaces of arrays."""

from gradtape.autograd.vector_spaces import VSpace as VSpace

ArrayVSpace = VSpace
ComplexArrayVSpace = VSpace
