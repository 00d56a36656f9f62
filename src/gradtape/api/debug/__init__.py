"""Debugging of gradients: cotangents at intermediate values, explanations, checks of numbers, statistics."""

from gradtape.api.debug.debugger import GradientsDebugger as GradientsDebugger
from gradtape.api.debug.debugger import clear_gradient_debuggers as clear_gradient_debuggers
from gradtape.api.debug.debugger import gradient_values_from_dump as gradient_values_from_dump
from gradtape.api.debug.explain import explain_gradient as explain_gradient
from gradtape.api.debug.explanation import Explanation as Explanation
from gradtape.api.debug.nonsmooth.kinks import Kink as Kink
from gradtape.api.debug.nonsmooth.kinks import Kinks as Kinks
from gradtape.api.debug.nonsmooth.kinks import kinks as kinks
from gradtape.api.debug.numerics import check_numerics as check_numerics
from gradtape.api.debug.numerics import disable_check_numerics as disable_check_numerics
from gradtape.api.debug.numerics import enable_check_numerics as enable_check_numerics
from gradtape.api.debug.precision import Digits as Digits
from gradtape.api.debug.precision import Loss as Loss
from gradtape.api.debug.precision import digits as digits
from gradtape.api.debug.statistics import GradientStatistics as GradientStatistics
from gradtape.api.debug.statistics import gradient_statistics as gradient_statistics
from gradtape.habits import DEBUG as _HABITS
from gradtape.habits import answering as _answering

__getattr__, __dir__ = _answering("gradtape.debug", globals(), _HABITS)
