"""The two differentiators, vector spaces, and the rules of primitives."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, Final

import numpy as np

from gradtape.api.custom.primitive import Primitive
from gradtape.api.transforms.gradient import jvp as push_forward
from gradtape.api.transforms.gradient import vjp as pull_back
from gradtape.autograd.vector_spaces import VSpace as VSpace
from gradtape.autograd.vector_spaces import differentiable
from gradtape.autograd.vector_spaces import vspace as vspace
from gradtape.autograd.wrap_util import get_name, subvals
from gradtape.errors import GradtapeWarning, warn
from gradtape.runtime.compile.background import patient
from gradtape.trace.array.handle import Handle
from gradtape.trees import flatten, unflatten

primitive = Primitive

primitive_vjps: Final[dict[Any, Callable[..., Any]]] = {}
"""For each primitive: ``rule(argnums, result, args, kwargs) -> pullback``."""

primitive_jvps: Final[dict[Any, Callable[..., Any]]] = {}
"""For each primitive: ``rule(argnums, tangents, result, args, kwargs) -> tangent``."""


def make_vjp(fun: Callable[[Any], Any], x: Any) -> tuple[Callable[[Any], Any], Any]:
    """Evaluate a function of one argument; return its pullback and its result."""
    with patient:
        value, pullback = pull_back(fun, differentiable(x), convention="jax")

    def vjp(g: Any) -> Any:
        with patient:
            return pullback(_as_cotangent(g, value))[0]

    return vjp, value


def make_jvp(fun: Callable[[Any], Any], x: Any) -> Callable[[Any], tuple[Any, Any]]:
    """Return the function that takes a tangent of `x` and returns the result of `fun` and its tangent."""

    def jvp(g: Any) -> Any:
        with patient:
            return push_forward(fun, (differentiable(x),), (g,))

    return jvp


def defvjp_argnums(fun: Any, vjpmaker: Callable[..., Any]) -> None:
    """Set the rule of a primitive for reverse mode: ``vjpmaker(argnums, result, args, kwargs) -> pullback``, for all arguments at once."""

    def dense(argnums: Any, result: Any, args: Any, kwargs: Any) -> Any:
        pullback = vjpmaker(argnums, result, args, kwargs)
        return lambda g: [part.dense() if isinstance(part, SparseObject) else part for part in pullback(g)]

    primitive_vjps[fun] = vjpmaker
    if _takes_rules(fun):
        fun.set_vjp(dense)


def defvjp_argnum(fun: Any, vjpmaker: Callable[..., Any]) -> None:
    """Set the rule of a primitive for reverse mode: ``vjpmaker(argnum, result, args, kwargs) -> pullback``, for one argument at a time."""

    def vjp_argnums(argnums: Any, *args: Any) -> Callable[[Any], Any]:
        vjps = [vjpmaker(argnum, *args) for argnum in argnums]
        return lambda g: tuple(vjp(g) for vjp in vjps)

    defvjp_argnums(fun, vjp_argnums)


def defvjp(fun: Any, *vjpmakers: Any, **kwargs: Any) -> None:
    """Set the rules of a primitive for reverse mode, one for each argument.

    Parameters
    ----------
    fun : primitive
        The primitive.
    *vjpmakers : callable or None
        ``vjpmaker(result, *args, **kwargs) -> pullback``; None for an argument without influence.
    argnums : sequence of int, optional
        The positions of the arguments that the rules are for, by default the first ones.

    Examples
    --------
    >>> import gradtape.autograd.numpy as np
    >>> from gradtape.autograd import grad
    >>> from gradtape.autograd.extend import defvjp, primitive
    >>> @primitive
    ... def square(x):
    ...     return x * x
    >>> defvjp(square, lambda result, x: lambda g: 2 * x * g)
    >>> float(grad(square)(3.0))
    6.0
    """
    rules = dict(zip(kwargs.get("argnums", count()), vjpmakers, strict=False))

    def vjp_argnums(argnums: Any, result: Any, args: Any, kwargs: Any) -> Callable[[Any], Any]:
        makers = [_rule_of(rules, fun, argnum, "VJP") for argnum in argnums]
        vjps = [maker and maker(result, *args, **kwargs) for maker in makers]
        return lambda g: tuple(vjp and vjp(g) for vjp in vjps)

    defvjp_argnums(fun, vjp_argnums)


def defjvp_argnums(fun: Any, jvpmaker: Callable[..., Any]) -> None:
    """Set the rule of a primitive for forward mode: ``jvpmaker(argnums, tangents, result, args, kwargs) -> tangent``."""
    primitive_jvps[fun] = jvpmaker
    if _takes_rules(fun):
        fun.set_jvp(jvpmaker)


def defjvp_argnum(fun: Any, jvpmaker: Callable[..., Any]) -> None:
    """Set the rule of a primitive for forward mode: ``jvpmaker(argnum, tangent, result, args, kwargs) -> tangent``."""

    def jvp_argnums(argnums: Any, gs: Any, result: Any, args: Any, kwargs: Any) -> Any:
        return sum_outgrads(
            jvpmaker(argnum, g, result, args, kwargs) for argnum, g in zip(argnums, gs, strict=True)
        )

    defjvp_argnums(fun, jvp_argnums)


def defjvp(fun: Any, *jvpfuns: Any, **kwargs: Any) -> None:
    """Set the rules of a primitive for forward mode, one for each argument.

    Parameters
    ----------
    fun : primitive
        The primitive.
    *jvpfuns : callable, "same" or None
        ``jvpfun(tangent, result, *args, **kwargs) -> tangent of the result``; "same" where the primitive is linear in it, None for
        an argument without influence.
    argnums : sequence of int, optional
        The positions of the arguments that the rules are for, by default the first ones.
    """
    rules = dict(zip(kwargs.get("argnums", count()), jvpfuns, strict=False))

    def jvp_argnums(argnums: Any, gs: Any, result: Any, args: Any, kwargs: Any) -> Any:
        terms = []
        for argnum, g in zip(argnums, gs, strict=True):
            rule = _rule_of(rules, fun, argnum, "JVP")
            if rule == "same":
                terms.append(fun(*subvals(args, [(argnum, g)]), **kwargs))
            elif rule is not None:
                terms.append(rule(g, result, *args, **kwargs))
        return sum_outgrads(terms)

    defjvp_argnums(fun, jvp_argnums)


def def_linear(fun: Any) -> None:
    """Say that a primitive is linear in all of its arguments."""
    defjvp_argnum(fun, lambda argnum, g, result, args, kwargs: fun(*subvals(args, [(argnum, g)]), **kwargs))


def sum_outgrads(terms: Any) -> Any:
    """Return the sum of elements of one vector space; None where there are none."""
    total = None
    for term in terms:
        total = term if total is None else vspace(term).add(total, term)
    return total


def _as_cotangent(g: Any, value: Any) -> Any:
    """Return a cotangent in the dtypes of a result: autograd does not check them."""
    leaves, spec = flatten(value)
    parts, own = flatten(g)
    if own != spec or len(parts) != len(leaves):
        return g  # which is an error below
    return unflatten(spec, [_in_dtype(part, leaf) for part, leaf in zip(parts, leaves, strict=True)])


def _in_dtype(part: Any, leaf: Any) -> Any:
    if isinstance(part, np.ndarray | np.generic | Handle) and part.dtype == leaf.dtype:
        return part
    if np.iscomplexobj(part) and not np.iscomplexobj(leaf):
        part = np.real(part)
    return np.asarray(part).astype(leaf.dtype)


def _takes_rules(fun: Any) -> bool:
    """Return whether a function is a primitive; a warning says so of others, which gradtape differentiates by what they do."""
    if isinstance(fun, Primitive):
        return True
    name = get_name(fun)
    warn(
        GradtapeWarning,
        f"the rule for {name} is not used",
        why=f"{name} is not a primitive: gradtape differentiates its code",
        remedy=f"decorate the function with @primitive, or own = primitive({name}), which takes rules",
    )
    return False


def _rule_of(rules: dict[int, Any], fun: Any, argnum: int, kind: str) -> Any:
    if argnum not in rules:
        define = f"def{kind.lower()}"
        raise NotImplementedError(  # the class of autograd's error
            f"{kind} of {get_name(fun)} wrt argnum {argnum} not defined: pass {define} a rule for this argument, "
            "or None if the result does not depend on it"
        )
    rule = rules[argnum]
    if rule is None or rule == "same" or callable(rule):
        return rule
    raise TypeError(f"Bad {kind} '{rule}' for '{get_name(fun)}'")


class VJPNode:
    """The class of autograd's nodes of reverse mode, by whose name packages refer to the mode."""


class JVPNode:
    """The class of autograd's nodes of forward mode, by whose name packages refer to the mode."""


class SparseObject:
    """A cotangent given by a function that adds it to an element of a vector space.

    Parameters
    ----------
    vs : VSpace
        The space.
    mut_add : callable
        ``mut_add(element) -> element``.
    """

    def __init__(self, vs: Any, mut_add: Callable[[Any], Any]) -> None:
        self.vs, self.mut_add = vs, mut_add

    def dense(self) -> Any:
        """Return the cotangent as an element."""
        return self.mut_add(self.vs.zeros())
