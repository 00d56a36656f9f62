"""The names of scipy.stats."""

from gradtape.autograd.namespaces import names_of
from gradtape.autograd.scipy.stats import beta as beta
from gradtape.autograd.scipy.stats import chi2 as chi2
from gradtape.autograd.scipy.stats import dirichlet as dirichlet
from gradtape.autograd.scipy.stats import gamma as gamma
from gradtape.autograd.scipy.stats import multivariate_normal as multivariate_normal
from gradtape.autograd.scipy.stats import norm as norm
from gradtape.autograd.scipy.stats import poisson as poisson
from gradtape.autograd.scipy.stats import t as t

__getattr__, __dir__ = names_of("scipy.stats")
