"""autograd's names: a package that imports autograd runs when its import lines name this module.

>>> import gradtape.autograd.numpy as np
>>> from gradtape.autograd import grad
>>> float(grad(lambda x: np.sin(x) ** 2)(0.0))
0.0
"""

from gradtape.autograd import numpy as numpy
from gradtape.autograd.builtins import dict as dict
from gradtape.autograd.builtins import isinstance as isinstance
from gradtape.autograd.builtins import list as list
from gradtape.autograd.builtins import tuple as tuple
from gradtape.autograd.builtins import type as type
from gradtape.autograd.differential_operators import checkpoint as checkpoint
from gradtape.autograd.differential_operators import deriv as deriv
from gradtape.autograd.differential_operators import elementwise_grad as elementwise_grad
from gradtape.autograd.differential_operators import grad as grad
from gradtape.autograd.differential_operators import grad_and_aux as grad_and_aux
from gradtape.autograd.differential_operators import grad_named as grad_named
from gradtape.autograd.differential_operators import hessian as hessian
from gradtape.autograd.differential_operators import hessian_tensor_product as hessian_tensor_product
from gradtape.autograd.differential_operators import hessian_vector_product as hessian_vector_product
from gradtape.autograd.differential_operators import holomorphic_grad as holomorphic_grad
from gradtape.autograd.differential_operators import jacobian as jacobian
from gradtape.autograd.differential_operators import make_ggnvp as make_ggnvp
from gradtape.autograd.differential_operators import make_hvp as make_hvp
from gradtape.autograd.differential_operators import make_jvp as make_jvp
from gradtape.autograd.differential_operators import make_jvp_reversemode as make_jvp_reversemode
from gradtape.autograd.differential_operators import make_vjp as make_vjp
from gradtape.autograd.differential_operators import multigrad_dict as multigrad_dict
from gradtape.autograd.differential_operators import tensor_jacobian_product as tensor_jacobian_product
from gradtape.autograd.differential_operators import value_and_grad as value_and_grad
from gradtape.autograd.differential_operators import vector_jacobian_product as vector_jacobian_product
from gradtape.autograd.tracer import primitive as primitive
