"""What users of other libraries type, and what gradtape has in its place: one line per name, shown by the error for the name.

`MODULE` answers for attributes of the package (``gt.lax``), `ARRAY` for attributes of arrays and variables (``x.backward``), `KEYWORDS` for
keyword arguments of NumPy's functions and methods (``x.sum(dim=0)``), `FUNCTION_KEYWORDS` for those of gradtape's functions
(``gt.optimizers.Adam(lr=0.1)``), `CONFIG` for settings.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")
V = TypeVar("V")

_NAMESPACES: Final = ("debug", "inspect", "optimizers", "plot", "scipy", "tree")
"""Folders and modules of the interface whose names users write with them: gt.scipy.minimize."""


def _entries(text: str) -> dict[str, str]:
    """Return the entries of a table: on each line names, a colon, and the line that answers for them."""
    table = {}
    for line in text.strip().splitlines():
        names, _, answer = line.partition(": ")
        table.update(dict.fromkeys(names.split(), answer))
    return table


_JAX = """
lax: loops and branches are gt.scan, gt.fori_loop, gt.while_loop, gt.map, gt.cond, gt.switch, gt.associative_scan; the rest is NumPy's, np.*
numpy jnp np: there is no second namespace; import numpy as np, and call np.* on what gradtape traces
nn: layers are NumPy code: np.maximum(x, 0), scipy.special.expit, scipy.special.log_softmax
random randn rand randint: draw with np.random.default_rng(seed), in the function too: each call draws anew
tree_util tree_map: use gt.tree.map(f, tree)
tree_leaves: use gt.tree.leaves(tree)
tree_flatten: use gt.tree.flatten(tree)
tree_unflatten: use gt.tree.unflatten(structure, leaves)
tree_structure: use gt.tree.structure(tree)
ravel_pytree flatten_util: use flat, unravel = gt.tree.ravel(tree)
global_norm clip_by_global_norm clip_grad_norm_: use gradients, norm = gt.optimizers.clip_by_global_norm(gradients, max_norm)
Adam adam AdamW: use gt.optimizers.Adam(learning_rate)
SGD sgd GradientDescentOptimizer: use gt.optimizers.SGD(learning_rate, momentum)
RMSprop rmsprop: use gt.optimizers.RMSprop(learning_rate)
sparse: use gt.sparse_jacobian(f), or call scipy.sparse as it is
linalg: call np.linalg and scipy.linalg as they are; gradtape differentiates them
fft: call np.fft and scipy.fft as they are; gradtape differentiates them
stop_grad: use gt.stop_gradient(x)
checkpoint_sequential: use gt.checkpoint(f) on each part
pmap shard_map xmap pmean psum: there is one device; gt.vmap(f) maps over an axis, and gt.config.num_threads = 4 uses four cores
make_jaxpr xla_computation: call f once, then print(gt.inspect.graph(f))
eval_shape: gt.jit(f).lower(gt.spec((3, 4))).out_specs, without data
ShapeDtypeStruct: use gt.spec(shape, dtype)
pure_callback io_callback: use gt.callback(f, result_like, x)
block_until_ready: results are ready when a jitted function returns; of a tape's array, x.numpy() computes now
device_put device_get devices local_devices default_device device_count: arrays are NumPy's, in the memory of the host
disable_jit: gt.config.jit = False runs jitted functions op by op
enable_x64: float64 is what NumPy makes, and what gradtape keeps; there is nothing to switch on
remat: use gt.checkpoint(f)
named_call named_scope: name a value with gt.name(x, "hidden")
closure_convert: values that a function reads from outside are inputs of its program; pass the function as it is
clear_caches: del the jitted function; gt.config.memory_cache bounds what each one keeps
fwd_and_bwd: use gt.vjp(f, x)
debug_nans: use with gt.debug.check_numerics(): ...
checking_leaks: an array that left its function raises LeakedValueError where it is used
custom_batching custom_transpose: give a rule with gt.custom_jvp or gt.custom_vjp
experimental sharding extend: there is no such namespace; docs/reference/api/index.md lists all names
typeof: use x.dtype and x.shape
"""

_TENSORFLOW = """
function: use @gt.jit
convert_to_tensor Tensor EagerTensor tensor as_tensor from_numpy: use gt.constant(a), or gt.asarray(a)
placeholder: write a function of the argument, and put @gt.jit on it
Session InteractiveSession global_variables_initializer get_default_graph Graph: there are no sessions; call the function, or read x.numpy()
TensorArray: append to a Python list and np.stack it, or write to y = np.zeros(n) in the loop; gt.scan stacks its results
map_fn: use gt.map(f, xs), or gt.vmap(f)(xs)
foldl foldr scan_associative: use gt.scan(f, init, xs)
case switch_case: use gt.switch(index, [f, g], x)
py_function numpy_function: NumPy code needs no wrapper; gt.callback(f, result_like, x) calls a function of another library
autodiff: gt.ForwardAccumulator and gt.jvp are forward mode
RegisterGradient: give a rule with @gt.custom_gradient, gt.custom_vjp or gt.custom_jvp
no_gradient NoGradient NotDifferentiable: use gt.stop_gradient(x)
keras layers train: a model is a function of its parameters; gt.optimizers has GradientDescent, Momentum and Adam
contrib compat eager raw_ops v1 v2: there is one version of each name; docs/reference/api/index.md lists them
executing_eagerly: code under a tape runs line by line; @gt.jit compiles
name_scope variable_scope: name a value with gt.name(x, "hidden")
control_dependencies: in-place writes and assignments happen in the order of the code
debugging: use gt.debug.check_numerics() and gt.debug.explain_gradient(tape, y, x)
reduce_sum: use np.sum
reduce_mean: use np.mean
reduce_max: use np.max
reduce_min: use np.min
reduce_prod: use np.prod
reduce_any: use np.any
reduce_all: use np.all
reduce_logsumexp logsumexp: use scipy.special.logsumexp
cast: use x.astype(dtype)
clip_by_value: use np.clip
identity: use x.copy()
expand_dims unsqueeze: use np.expand_dims, or x[:, None]
one_hot: use np.eye(n)[labels]
gather_nd: use x[i, j] with arrays of integers
tensor_scatter_nd_update scatter_nd: write to a copy, y = x.copy(); y[indices] = values, or use gt.scatter_update
segment_sum: use np.add.at(np.zeros(n), indices, values) in traced code
softmax: use scipy.special.softmax
log_softmax: use scipy.special.log_softmax
sigmoid: use scipy.special.expit
relu: use np.maximum(x, 0)
argsort: use np.argsort
stop_recording: call it on a tape: tape.stop_recording()
Module: a model is a function of its parameters, in a dict or a dataclass
"""

_PYTORCH = """
no_grad inference_mode enable_grad: use with tape.stop_recording(), or gt.stop_gradient(x); nothing is recorded outside a tape
backward: use gt.grad(f), or tape.gradient(loss, x) of with gt.GradientTape() as tape
autograd: gradients are gt.grad(f) and tape.gradient(y, x); rules are gt.custom_vjp
optim optimizer: use gt.optimizers
func functional: the transforms are gt.grad, gt.vjp, gt.jvp, gt.vmap, gt.jacrev, gt.jacfwd and gt.hessian
compile: use @gt.jit
requires_grad requires_grad_ Parameter: watch an array with x = tape.watch(x), or keep state in gt.Variable(x)
detach: use gt.stop_gradient(x)
grad_and_value value_and_gradient value_grad: use gt.value_and_grad(f), which returns (value, gradient)
functional_call: a model is a function of its parameters
cat: use np.concatenate
manual_seed set_seed seed: seed the generator: np.random.default_rng(seed)
cuda device cpu mps: arrays are NumPy's, in the memory of the host
gradcheck: use gt.check_grads(f, args)
detect_anomaly: use with gt.debug.check_numerics(): ...
save: gt.export(f, x, path=p) for functions; np.save and np.load, or pickle: arrays and variables can be pickled
set_default_dtype get_default_dtype: dtypes are NumPy's: float64 unless the arguments are something else
vhp: use gt.hvp(f, (x,), (v,)): a Hessian is symmetric
"""

_AUTOGRAD = """
elementwise_grad: use gt.grad(lambda x: np.sum(f(x))), or gt.vmap(gt.grad(f))
egrad deriv derivative: use gt.grad(f) for one number, gt.vmap(gt.grad(f)) for many
make_vjp: use y, pullback = gt.vjp(f, x)
make_jvp: use y, tangent = gt.jvp(f, (x,), (v,))
make_hvp hessian_vector_product hessian_tensor_product: use gt.hvp(f, (x,), (v,))
make_ggnvp: use gt.jvp and gt.vjp: J' H J v is vjp(f, x)[1](H @ jvp(f, (x,), (v,))[1])
tensor_jacobian_product vector_jacobian_product: use gt.vjp(f, x)[1](v)
make_jvp_reversemode: use gt.jvp(f, (x,), (v,))
primitive Primitive: give a rule with gt.custom_vjp or gt.custom_jvp
defvjp defvjp_all defgrad defvjp_argnum: decorate with @gt.custom_vjp, then f.defvjp(forward, backward)
defjvp defjvp_argnum def_linear: decorate with @gt.custom_jvp, then @f.defjvp
notrace_primitive nograd: use gt.stop_gradient(f(x))
grad_and_aux: use gt.grad(f, has_aux=True)
value_and_aux: use gt.value_and_grad(f, has_aux=True)
multigrad multigrad_dict grad_named: use argnums=(0, 1) or argnames=("a", "b") of gt.grad
holomorphic_grad: use gt.grad(f, holomorphic=True)
fixed_point: use gt.while_loop, or gt.custom_vjp with the rule of the fixed point
"""

_CASADI = """
SX MX DM sym symvar symbols: write a function of ndarrays; there are no symbols to be declared
Function: use @gt.jit
vertcat: use np.concatenate (of numbers, np.stack)
horzcat: use np.concatenate(..., axis=1), or np.column_stack
jtimes: use gt.jvp(f, (x,), (v,)), or gt.vjp(f, x)
gradient: use gt.grad(f), or tape.gradient(y, x)
sumsqr: use np.sum(x**2)
mtimes: use a @ b
if_else: use np.where(c, a, b), or gt.cond(c, f, g, x)
nlpsol qpsol Opti rootfinder minimize: use gt.scipy.minimize, or call scipy.optimize.minimize as it is
integrator odeint solve_ode ode_solve ODEProblem diffeqsolve: call scipy.integrate.solve_ivp or odeint, which are differentiated
to_onnx onnx to_c codegen: use gt.export(f, gt.spec((3, 4)), path="f.c")
external Callback: give a rule with gt.custom_vjp
njit: use @gt.jit; an @numba.njit function can be called inside it
prange: write range(n); gt.config.num_threads = 4 lets compiled loops use four cores
theano shared: state that changes is gt.Variable(x)
jac: use gt.jacobian(f)
hess: use gt.hessian(f)
vjps: use gt.vjp(f, x)
batch_jacobian: use gt.vmap(gt.jacobian(f)), or tape.batch_jacobian(y, x)
watch gradient_tape Tape tape: use with gt.GradientTape() as tape: x = tape.watch(x)
config_context: set attributes of gt.config
foreach for_loop: use gt.fori_loop(lower, upper, body, init), or a Python loop
"""

MODULE: Final = (
    _entries(_JAX) | _entries(_TENSORFLOW) | _entries(_PYTORCH) | _entries(_AUTOGRAD) | _entries(_CASADI)
)

ARRAY: Final = _entries("""
at: write in place: y = x.copy(); y[0] = v (or y[0] += v), which is differentiated
backward: use tape.gradient(loss, x), or gt.grad(f)(x)
detach detach_: use gt.stop_gradient(x)
grad grad_fn retain_grad: arrays keep no gradients; use g = tape.gradient(loss, x)
requires_grad requires_grad_: watch it with x = tape.watch(x)
is_leaf: every array can be watched: x = tape.watch(x)
register_hook: use gt.debug.GradientsDebugger() to see the gradient at a value
zero_grad zero_: there are no gradients to be zeroed; x[...] = 0 writes zeros
cpu cuda: arrays are in the memory of the host; x.numpy() is an ndarray
block_until_ready: x.numpy() computes now
unsqueeze expand_dims: use x[:, None], or np.expand_dims(x, axis)
dim rank: use x.ndim
get_shape set_shape: use x.shape
numel nelement: use x.size
permute: use x.transpose(2, 0, 1)
t: use x.T
H: use x.conj().T
type type_as double half long: use x.astype(dtype)
add_ sub_ mul_ div_ copy_ fill_ clamp_: write in place: x += y, x[...] = y
matmul mm bmm mv: use x @ y
exp log sin cos tanh sqrt abs pow square sigmoid: use NumPy's function, np.exp(x) and the like
norm: use np.linalg.norm(x)
clamp: use x.clip(low, high)
view_as expand expand_as: use x.reshape(y.shape), or np.broadcast_to(x, y.shape)
chunk split unbind: use np.split(x, n)
index_select gather: use x[indices], or np.take(x, indices, axis)
masked_fill where: use np.where(mask, value, x)
scatter_add scatter_add_ index_add_: use np.add.at(x, indices, values), or gt.scatter_add
contiguous: arrays are contiguous where NumPy's are; use x.copy()
eval: x.numpy() computes now
values to_numpy: it is an array already; x.numpy() is an ndarray
dims coords attrs sizes: an array has no labels: pass the DataArray itself, or label it inside, xr.DataArray(x, dims=...)
iloc loc iat columns index isel sel head tail: an array has no labels: pass the table itself, or label it inside, pd.Series(x)
rolling groupby apply merge join fillna dropna: an array has no labels: pass the table itself, or label it inside, pd.Series(x)
_value primal: use x.numpy(), which leaves the record
weak_type aval: use x.dtype and x.shape
devices sharding: arrays are in the memory of the host
to: use x.astype(dtype)
op graph: gt.debug.explain_gradient(tape, y, x) says how a value was computed
random normal uniform standard_normal integers poisson binomial: arrays and numbers are no generators; pass np.random.default_rng(seed)
""")

FUNCTION: Final = _entries("""
compile get_concrete_function: f.lower(x).compile(), or call it once; gt.inspect.graph(f) and gt.inspect.asm(f) show what it is
inspect_llvm: use gt.inspect.llvm(f)
inspect_asm: use gt.inspect.asm(f)
inspect_types inspect_cfg: use gt.inspect.graph(f), or gt.inspect.loops(f)
trace: call it once, then print(gt.inspect.graph(f))
eval_shape: f.lower(x).out_specs, without data
clear_cache _clear_cache: make the function again with gt.jit; gt.config.memory_cache bounds what it keeps
py_func python_function func: use f.__wrapped__
signatures nopython_signatures overloads: use gt.inspect.explain(f)
defvjp defjvp defjvps defvjp_all: decorate with @gt.custom_vjp or @gt.custom_jvp in place of @gt.jit
apply forward backward parameters zero_grad: a jitted function is called; gt.grad(f)(x) is its gradient
""")

TAPE: Final = _entries("""
grad gradients: use tape.gradient(y, x)
backward: use tape.gradient(loss, x)
hessian: use gt.hessian(f)(x), or a tape around a tape: gt.GradientTape
jvp: use gt.jvp, or with gt.ForwardAccumulator(x, v) as acc: ..., acc.jvp(y)
vjp pullback: use tape.gradient(y, x, output_gradients=v)
record start_recording: enter the tape: with tape: ...
watch_variables: variables are watched when they are read; tape.watch(v) watches one
variables trainable_variables: use tape.watched_variables()
""")

DEBUG: Final = _entries("""
print: use gt.print("x = {}", x), which prints in each call of a compiled function
breakpoint: set gt.config.eager = True and use breakpoint()
callback: use gt.callback(f, result_like, x)
nans debug_nans detect_anomaly set_detect_anomaly assert_all_finite: use with gt.debug.check_numerics(): ...
""")

OPTIMIZERS: Final = _entries("""
GradientDescentOptimizer sgd descent: use SGD, or GradientDescent
MomentumOptimizer momentum Nesterov NAG: use Momentum, or SGD with momentum
AdamOptimizer adam AdamW Adamax Nadam: use Adam
RMSProp rmsprop: use RMSprop
Adagrad Adadelta Ftrl LAMB Lion adagrad: subclass Optimizer, or write the step with gt.grad
LBFGS BFGS minimize: use gt.scipy.minimize, or call scipy.optimize.minimize as it is
clip_grad_norm_ clip_grad_norm clip: use clip_by_global_norm(gradients, max_norm)
lr_scheduler LearningRateSchedule: use exponential_decay, cosine_decay, piecewise_constant or warmup as learning_rate
ExponentialDecay ExponentialLR: use exponential_decay
CosineDecay CosineAnnealingLR cosine_decay_schedule: use cosine_decay
PiecewiseConstantDecay MultiStepLR StepLR: use piecewise_constant
apply_updates: update returns the new parameters
""")

OPTIMIZER: Final = _entries("""
step zero_grad backward: use optimizer.apply_gradients(zip(gradients, variables)), or update(gradients, state, params)
param_groups add_param_group parameters: an optimizer holds no parameters; use optimizer.apply_gradients(zip(gradients, variables))
state_dict load_state_dict get_config: pickle the optimizer, or the state that init and update return
lr set_lr: use optimizer.learning_rate
""")

SCIPY: Final = _entries("""
NonlinearConstraint LinearConstraint Bounds OptimizeResult: it is scipy.optimize's, and gt.scipy accepts it
minimize_scalar root_scalar brentq newton linprog differential_evolution basinhopping: call the function of scipy.optimize directly
solve_ivp quad odeint solve_bvp: call the function of scipy.integrate directly
special stats linalg sparse signal interpolate optimize integrate fft ndimage spatial: import SciPy's module as it is
""")

CONFIG: Final = _entries("""
update set: assign: gt.config.num_threads = 4
context option_context: use with gt.config.override(num_threads=4): ...
jax_enable_x64 enable_x64: float64 is the default, and gradtape keeps the dtypes of arguments
jax_debug_nans debug_nans: use with gt.debug.check_numerics(): ...
jax_disable_jit disable_jit: gt.config.jit = False runs jitted functions op by op
run_functions_eagerly: gt.config.eager = True computes each operation at once
threads n_threads: use gt.config.num_threads
""")

KEYWORDS: Final = _entries("""
dim dims: axis=0, the number of a dimension (for named ones label the array in the function: xr.DataArray(x, dims=...))
reduction_indices axes dimension: axis
keepdim keep_dims: keepdims
unbiased: ddof
descending: a slice, [::-1]
dtype_ type: dtype
""")
"""Keyword arguments of other libraries, with NumPy's."""


FUNCTION_KEYWORDS: Final = _entries("""
lr: learning_rate
loops loop: it is a setting: gt.config.loops = "compile"
num_threads threads n_threads: it is a setting: gt.config.num_threads = 4
eps: epsilon
jac Dfun fprime: leave it out: gradtape computes the derivatives
policy prevent_cse: leave it out: all of the function is recomputed
alpha decay smoothing_constant: rho
betas: beta_1 and beta_2
weight_decay: leave it out: add the penalty to the loss, 0.5 * decay * np.sum(w**2)
wrt arg args argument: argnums
names argname: argnames
aux with_aux has_auxiliary: has_aux
static static_args: static_argnums
in_dims in_dim: in_axes
out_dims out_dim: out_axes
batch_size chunks: chunk_size
max_iter maxiter num_iterations: max_iterations
complex: holomorphic
allow_int: the derivative with respect to an integer is undefined; convert the argument: x.astype(float)
create_graph retain_graph: leave it out: derivatives can be differentiated as they are, gt.grad(gt.grad(f))
persistent: leave it out here; tapes have it: gt.GradientTape(persistent=True)
allow_unused unused materialize_grads: leave it out: an argument without influence has the gradient zero
donate_argnums donate_argnames: leave it out: memory is reused without it
backend device platform: leave it out: compiled code runs on the CPU
nopython parallel fastmath cache jit_compile autograph: leave it out; gt.config has the options of the compiler
vectorize: leave it out: Jacobians are always vectorised; chunk_size limits the memory
axis_name axis_size spmd_axis_name: leave it out: gt.vmap maps over axes by their numbers
reduce_axes: leave it out; sum over the axes in the function
""")
"""Keyword arguments of transforms and optimisers in other libraries, with ours, or with a remedy where there is none."""


class Missing:
    """An attribute that objects of a class do not have, with what to say of it.

    It stands in the class: with a ``__getattr__``, Python would look up every attribute of the objects in its slow way.

    Parameters
    ----------
    name : str
        The attribute.
    answer : str
        What users of other libraries are to write.
    """

    def __init__(self, name: str, answer: str) -> None:
        self._name = name
        self._answer = answer

    def __get__(self, instance: object, owner: type) -> Any:
        raise self._error(owner)

    def _error(self, owner: type) -> AttributeError:
        message = f"{owner.__name__!r} object has no attribute {self._name!r}: {self._answer}"
        return AttributeError(message, name=self._name, obj=None)

    @staticmethod
    def teach(owner: type, table: dict[str, str]) -> None:
        """Let a class answer for the names of a table that it does not have."""
        kind = Missing if owner.__dictoffset__ else MissingInSlots
        for name in table.keys() - set(dir(owner)):
            setattr(owner, name, kind(name, table[name]))


class MissingInSlots(Missing):
    """The same for objects that take no attributes: Python would say of ``x.requires_grad = True`` that it is read-only."""

    def __set__(self, instance: object, value: object) -> None:
        raise self._error(type(instance))


def missing_in(module: str, table: dict[str, str], name: str, names: list[str]) -> AttributeError:
    """Return the error for an attribute that a module of the package does not have."""
    near = nearest(name, names)
    answer = table.get(name) or (f"did you mean {module.replace('gradtape', 'gt')}.{near}?" if near else "")
    message = f"module {module!r} has no attribute {name!r}{f': {answer}' if answer else ''}"
    return AttributeError(message, name=name, obj=None)


def answering(
    module: str, namespace: dict[str, Any], table: dict[str, str] | None = None
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a public module: the first answers for missing names, the second lists public ones."""

    def public() -> list[str]:
        home = namespace["__name__"]
        names = namespace.get("__all__") or [
            name
            for name, value in namespace.items()
            if name[0] != "_" and str(getattr(value, "__module__", "")).startswith(home)
        ]
        return sorted(names)

    def answer(name: str) -> object:
        raise missing_in(module, table or {}, name, public())

    return answer, public


def missing(name: str, names: list[str], namespace_of: Callable[[str], str]) -> str:
    """Return what to say of an attribute that the package does not have; empty where there is nothing to say.

    Parameters
    ----------
    name : str
        The attribute.
    known : list of str
        What the package has.
    namespace_of : callable
        Returns the namespace of the package that has the name, or an empty string.
    """
    answer = MODULE.get(name, "")
    if answer or name.startswith("_"):
        return answer
    if callable(getattr(np, name, None)):
        return f"use np.{name}; gradtape differentiates NumPy's functions"
    if namespace := namespace_of(name):
        return f"use gt.{namespace}.{name}"
    near = nearest(name, names)
    if near:
        return f"did you mean gt.{near}?"
    near = nearest(name, [*MODULE])
    return f"{near}: {MODULE[near]}" if near else ""


def keyword(error: TypeError, name: str) -> TypeError | None:
    """Return the error for a keyword argument that a function of NumPy's does not have, from Python's; None for other errors.

    Parameters
    ----------
    error : TypeError
        What calling gradtape's function for it raised.
    name : str
        NumPy's function, as one writes it.
    """
    _, separator, tail = str(error).partition("got an unexpected keyword argument ")
    if not separator:
        return None
    unknown = tail.split("'")[1]  # Python proposes a name behind it
    answer = KEYWORDS.get(unknown)
    return TypeError(
        f"{name}() got an unexpected keyword argument {unknown!r}"
        + (f": NumPy has {answer}" if answer else "")
    )


def suggests_keywords(function: Callable[P, V]) -> Callable[P, V]:
    """Let a wrong call of a public function raise an error with the keyword that was probably meant, or with the arguments it takes."""

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> V:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            better = _unknown_keyword(error, function) or _wrong_arguments(error, function)
            if better is None:
                raise
            raise better from None

    return called


def _unknown_keyword(error: TypeError, function: Callable[..., Any]) -> TypeError | None:
    """Return the error for a keyword argument that a function does not have, from Python's; None for other errors."""
    called, separator, tail = str(error).partition("() got an unexpected keyword argument ")
    if not separator or called.rpartition(".")[2] != function.__name__:
        return None
    parameters_of_function = [
        name
        for name, parameter in list(inspect.signature(function).parameters.items())[1:]
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    return unknown_keyword(_public_name(function), tail.split("'")[1], parameters_of_function)


def _wrong_arguments(error: TypeError, function: Callable[..., Any]) -> TypeError | None:
    """Return the error for a missing argument or one too many, with those that a function takes, from Python's; None for other errors."""
    _, separator, tail = str(error).partition("() ")
    inside = error.__traceback__ is not None and error.__traceback__.tb_next is not None
    if not separator or inside or not tail.startswith(_WRONG_CALLS):
        return None
    parameters = [
        f"{name}={'...' if parameter.default is parameter.empty else repr(parameter.default)}"
        if parameter.kind == parameter.KEYWORD_ONLY
        else name
        for name, parameter in list(inspect.signature(function).parameters.items())[
            "." in function.__qualname__ :
        ]
        if parameter.default is parameter.empty or parameter.kind != parameter.KEYWORD_ONLY
    ]
    shown = _public_name(function)
    return TypeError(f"{shown}() {tail}: its arguments are {shown}({', '.join(parameters)})")


_WRONG_CALLS: Final = ("missing ", "got multiple values for argument ", "takes ")
"""How Python's errors for the number of arguments go on."""


def _public_name(function: Callable[..., Any]) -> str:
    owner, _, method = function.__qualname__.removesuffix(".__init__").rpartition(".")
    if owner == "GradientTape":
        return f"tape.{method}"
    folder = function.__module__.removeprefix("gradtape.api.").partition(".")[0]
    namespace = f"{folder}." if folder in _NAMESPACES else ""
    return f"gt.{namespace}{function.__qualname__.removesuffix('.__init__')}"


def unknown_keyword(shown: str, unknown: str, names: list[str]) -> TypeError:
    """Return the error for a keyword argument that a function of gradtape's does not have.

    Parameters
    ----------
    shown : str
        The function as users write it.
    given : str
        The keyword.
    known : list of str
        Those that the function has.
    """
    nearest_name = FUNCTION_KEYWORDS.get(unknown) or nearest(unknown, names)
    if nearest_name in names:
        options = f"did you mean {nearest_name}?"
    else:
        options = nearest_name or (f"its options are {', '.join(names)}" if names else "it has none")
    return TypeError(f"{shown}() got an unexpected keyword argument {unknown!r}: {options}")


def nearest(name: str, names: list[str]) -> str:
    """Return the name that differs least from another one, if it is a misspelling, the beginning or an extension of it: empty otherwise.

    Examples
    --------
    >>> nearest("jacobain", ["jacobian", "jacfwd", "jit"])
    'jacobian'
    >>> nearest("expect", ["export", "expectation"])
    'expectation'
    """
    small = name.lower().replace("_", "")
    allowed = 1 if len(small) < 6 else 2
    if len(small) < 3:
        return ""
    folded = [(other.lower().replace("_", ""), other) for other in names if other[0] != "_"]
    near = [
        (_distance(small, letters), not letters.startswith(small), _distance(name, other), other)
        for letters, other in folded
        if abs(len(letters) - len(small)) <= allowed
    ]
    distance, *_, other = min(near, default=(allowed + 1, True, 0, ""))
    if distance <= 1:
        return other if distance <= allowed else ""
    longer = [candidate for letters, candidate in folded if letters.startswith(small) and len(small) >= 5]
    shorter = [candidate for letters, candidate in folded if small.startswith(letters) and len(letters) >= 5]
    begun = min(longer, key=len, default=max(shorter, key=len, default=""))
    return begun or (other if distance <= allowed else "")


def _distance(a: str, b: str) -> int:
    """Return how many letters have to be put in, left out, changed or swapped with their neighbour (optimal string alignment)."""
    rows = [list(range(len(b) + 1))]
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            cost = min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, rows[-2][j - 2] + 1)
            row.append(cost)
        rows.append(row)
    return rows[-1][-1]
