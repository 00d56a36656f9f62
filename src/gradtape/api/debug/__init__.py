"""Looking at gradients: where they come from, why they are missing, where they go wrong."""

from ...habits import DEBUG as _DEBUG
from ...habits import missing_in as _missing_in
from .debugger import GradientsDebugger as GradientsDebugger
from .debugger import clear_gradient_debuggers as clear_gradient_debuggers
from .debugger import gradient_values_from_dump as gradient_values_from_dump
from .explain import explain_gradient as explain_gradient
from .explanation import Explanation as Explanation
from .numerics import check_numerics as check_numerics
from .numerics import disable_check_numerics as disable_check_numerics
from .numerics import enable_check_numerics as enable_check_numerics
from .statistics import GradientStatistics as GradientStatistics
from .statistics import gradient_statistics as gradient_statistics


def __getattr__(name: str) -> object:
    raise _missing_in("gradtape.debug", _DEBUG, name, list(globals()))
