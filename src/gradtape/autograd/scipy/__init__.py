"""SciPy's names."""

from gradtape.autograd.scipy import integrate as integrate
from gradtape.autograd.scipy import linalg as linalg
from gradtape.autograd.scipy import misc as misc
from gradtape.autograd.scipy import signal as signal
from gradtape.autograd.scipy import special as special
from gradtape.autograd.scipy import stats as stats
