"""Looking inside compiled functions: their forms from graph to assembly, why they are as they are, and where the time goes."""

from gradtape.api.inspect.page.opening import Inspector as Inspector
from gradtape.api.inspect.page.opening import open as open
from gradtape.api.inspect.profiles import Report as Report
from gradtape.api.inspect.profiles import profile as profile
from gradtape.api.inspect.sparsity import Sparsity as Sparsity
from gradtape.api.inspect.sparsity import sparsity as sparsity
from gradtape.api.inspect.views import Text as Text
from gradtape.api.inspect.views import asm as asm
from gradtape.api.inspect.views import explain as explain
from gradtape.api.inspect.views import graph as graph
from gradtape.api.inspect.views import llvm as llvm
from gradtape.api.inspect.views import loops as loops
from gradtape.api.inspect.views import numba_source as numba_source
from gradtape.habits import answering as _answering

__getattr__, __dir__ = _answering("gradtape.inspect", globals())
