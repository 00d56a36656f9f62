"""Looking inside of compiled functions: their forms from graph to assembly, why they are as they are, and where the time goes."""

from .profiles import Report as Report
from .profiles import profile as profile
from .views import Text as Text
from .views import asm as asm
from .views import explain as explain
from .views import graph as graph
from .views import llvm as llvm
from .views import loops as loops
