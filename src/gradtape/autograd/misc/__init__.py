"""Tools around derivatives: nested containers as vectors, optimisers, fixed points."""

from gradtape.autograd.misc.flatten import flatten as flatten
from gradtape.autograd.misc.tracers import const_graph as const_graph
