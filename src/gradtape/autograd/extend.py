"""What extends autograd: primitives with rules, and vector spaces."""

from gradtape.autograd.core import JVPNode as JVPNode
from gradtape.autograd.core import SparseObject as SparseObject
from gradtape.autograd.core import VJPNode as VJPNode
from gradtape.autograd.core import VSpace as VSpace
from gradtape.autograd.core import def_linear as def_linear
from gradtape.autograd.core import defjvp as defjvp
from gradtape.autograd.core import defjvp_argnum as defjvp_argnum
from gradtape.autograd.core import defjvp_argnums as defjvp_argnums
from gradtape.autograd.core import defvjp as defvjp
from gradtape.autograd.core import defvjp_argnum as defvjp_argnum
from gradtape.autograd.core import defvjp_argnums as defvjp_argnums
from gradtape.autograd.core import vspace as vspace
from gradtape.autograd.tracer import Box as Box
from gradtape.autograd.tracer import notrace_primitive as notrace_primitive
from gradtape.autograd.tracer import primitive as primitive
from gradtape.autograd.tracer import register_notrace as register_notrace
