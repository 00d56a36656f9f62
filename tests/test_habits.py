"""What users of other libraries type is answered with what gradtape has in its place."""

from __future__ import annotations

import re
from typing import Any

import numba
import numpy as np
import pytest
from scipy import special

import gradtape as gt
from gradtape import habits
from tests.support.ways import PAIR, expect

NAMED = re.compile(
    r"(?<![\w.])(gt|np|scipy\.special)\.((?:linalg\.|random\.|add\.|optimizers\.|inspect\.|debug\.|config\.)?\w+)"
)


def resolve(thing: Any, path: str) -> Any:
    for part in path.split("."):
        thing = getattr(thing, part)
    return thing


TABLES = {
    "package": habits.MODULE,
    "arrays": habits.ARRAY,
    "functions": habits.FUNCTION,
    "tapes": habits.TAPE,
    "debug": habits.DEBUG,
    "optimizers": habits.OPTIMIZERS,
    "optimizer": habits.OPTIMIZER,
    "settings": habits.CONFIG,
}
OWNERS = {
    "arrays": gt.Array,
    "functions": type(gt.jit(np.sin)),
    "tapes": gt.GradientTape,
    "optimizer": gt.optimizers.Optimizer,
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_answers_name_what_exists(table: dict[str, str]) -> None:
    homes = {"gt": gt, "np": np, "scipy.special": special}
    for name, answer in table.items():
        assert answer and "\n" not in answer, name
        for home, path in NAMED.findall(answer):
            if path not in ("X", "linalg.", "random."):
                assert resolve(homes[home], path) is not None, (name, path)


def test_what_there_is_needs_no_answer() -> None:
    assert not habits.MODULE.keys() & set(dir(gt))
    assert not habits.DEBUG.keys() & set(dir(gt.debug))
    assert not habits.OPTIMIZERS.keys() & set(dir(gt.optimizers))
    for table, owner in OWNERS.items():
        for name in TABLES[table]:
            assert not hasattr(owner, name), (owner, name)


@pytest.mark.parametrize(
    ("thing", "name", "answer"),
    [
        (gt.jit(np.sin), "compile", "f.lower(x).compile()"),
        (gt.grad(np.sin), "get_concrete_function", "gt.inspect.graph(f)"),
        (gt.GradientTape(), "backward", "tape.gradient(loss, x)"),
        (gt.debug, "print", "gt.print"),
        (gt.debug, "explain_gradiant", "did you mean gt.debug.explain_gradient?"),
        (gt.optimizers, "AdamW", "use Adam"),
        (gt.optimizers.SGD(0.1), "zero_grad", "optimizer.apply_gradients(zip(gradients, variables))"),
        (gt.optimizers.Adam(0.1), "state_dict", "pickle the optimizer"),
        (gt.scipy, "Bounds", "scipy.optimize"),
        (gt.tree, "leave", "did you mean gt.tree.leaves?"),
        (gt.plot, "jacobain", "did you mean gt.plot.jacobian?"),
        (gt.inspect, "grph", "did you mean gt.inspect.graph?"),
        (gt.optimizers, "Adamm", "did you mean gt.optimizers.Adam?"),
    ],
)
def test_names_elsewhere(thing: Any, name: str, answer: str) -> None:
    assert not hasattr(thing, name)
    assert (
        expect(AttributeError, lambda: getattr(thing, name), f"has no attribute {name!r}: ", answer).name
        == name
    )
    assert ": " not in str(expect(AttributeError, lambda: thing.frobnicate))


def test_attributes_of_the_users_function_are_its_own() -> None:
    def f(x: Any) -> Any:
        return x

    f.lower = "mine"  # type: ignore[attr-defined]
    assert gt.jit(f).lower == "mine"


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("lax", "gt.scan"),
        ("numpy", "import numpy as np"),
        ("function", "use @gt.jit"),
        ("pure_callback", "gt.callback"),
        ("no_grad", "gt.stop_gradient(x)"),
        ("elementwise_grad", "gt.vmap(gt.grad(f))"),
        ("make_vjp", "gt.vjp(f, x)"),
        ("vertcat", "np.concatenate"),
        ("jacobain", "did you mean gt.jacobian?"),
        ("Value_and_grad", "did you mean gt.value_and_grad?"),
        ("elementwise_gard", "gt.vmap(gt.grad(f))"),
        ("expect", "did you mean gt.expectation?"),
        ("sparse_jac", "did you mean gt.sparse_jacobian?"),
        ("checkpointing", "did you mean gt.checkpoint?"),
        ("solve_ode", "scipy.integrate.solve_ivp"),
        ("to_onnx", "gt.export"),
        ("randn", "np.random.default_rng(seed)"),
        ("einsum", "use np.einsum"),
        ("digits", "use gt.debug.digits"),
        ("uncertainty", "use gt.scipy.uncertainty"),
        ("profile", "use gt.inspect.profile"),
    ],
)
def test_names_of_the_package(name: str, answer: str) -> None:
    assert not hasattr(gt, name)
    error = expect(AttributeError, lambda: getattr(gt, name), f"has no attribute {name!r}: ", answer)
    assert error.name == name and "\n" not in str(error)
    with pytest.raises(ImportError, match=re.escape(answer)):
        exec(f"from gradtape import {name}")


@pytest.mark.parametrize("namespace", ["debug", "inspect", "optimizers", "plot", "scipy", "tree"])
def test_completion_lists_public_names_only(namespace: str) -> None:
    module = getattr(gt, namespace)
    names = dir(module)
    assert names and all(name[0] != "_" for name in names)
    for name in names:
        thing = getattr(module, name)
        assert thing.__module__.startswith(f"gradtape.api.{namespace}") or name == "uncertainty"
        assert thing.__doc__


def test_names_that_are_misspelt_in_modules() -> None:
    expect(AttributeError, lambda: gt.debug.digts, "did you mean gt.debug.digits?")
    expect(AttributeError, lambda: gt.inspect.llmv, "did you mean gt.inspect.llvm?")


def test_names_that_nobody_knows() -> None:
    for name in ("frobnicate", "_repr_mimebundle_", "ab"):
        assert (
            str(expect(AttributeError, lambda name=name: getattr(gt, name)))
            == f"module 'gradtape' has no attribute {name!r}"
        )
    with pytest.raises(ImportError, match="cannot import name 'frobnicate'"):
        exec("from gradtape import frobnicate")


def test_modules_can_be_imported_also_where_their_names_are_like_others() -> None:
    assert "missing" in dir(habits)
    exec("from gradtape import trace, lower, loops, habits, __main__")


@pytest.mark.parametrize("make", [gt.constant, gt.Variable])
@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("at", "y[0] = v"),
        ("backward", "tape.gradient(loss, x)"),
        ("detach", "gt.stop_gradient(x)"),
        ("requires_grad", "tape.watch(x)"),
        ("unsqueeze", "x[:, None]"),
        ("ctypes", "x.numpy().ctypes"),
    ],
)
def test_names_of_arrays(make: Any, name: str, answer: str) -> None:
    x = make(PAIR)
    assert not hasattr(x, name) and name not in dir(x) and "sum" in dir(x)
    error = expect(
        AttributeError,
        lambda: getattr(x, name),
        f"{type(x).__name__!r} object has no attribute {name!r}",
        answer,
    )
    assert error.name == name and "\n" not in str(error)
    expect(AttributeError, lambda: gt.jit(lambda x: getattr(x, name))(PAIR), answer)


@pytest.mark.parametrize("make", [gt.constant, gt.Variable])
def test_attributes_of_other_libraries_are_not_set(make: Any) -> None:
    x = make(1.0)
    with pytest.raises(
        AttributeError, match=r"has no attribute 'requires_grad': watch it with x = tape\.watch"
    ):
        x.requires_grad = True
    with pytest.raises(AttributeError):
        x.anything = True


def test_arrays_made_in_traced_code() -> None:
    def f(x: Any) -> Any:
        y = np.zeros(2)
        y[0] = x[0]
        return y.at[1].set(x[1])

    expect(AttributeError, lambda: gt.jit(f)(PAIR), "has no attribute 'at'", "y[0] = v")


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (lambda x: x.sum(dim=0), "np.sum() got an unexpected keyword argument 'dim': NumPy has axis"),
        (lambda x: x.mean(0, keepdim=True), "'keepdim': NumPy has keepdims"),
        (lambda x: x.std(unbiased=True), "'unbiased': NumPy has ddof"),
        (lambda x: x.max(nonsense=0), "np.max() got an unexpected keyword argument 'nonsense'"),
    ],
)
def test_keywords_of_other_libraries(call: Any, answer: str) -> None:
    for function, x in ((call, gt.constant(PAIR)), (gt.jit(call), PAIR)):
        assert "\n" not in str(expect(TypeError, lambda function=function, x=x: function(x), answer))


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (
            lambda: gt.grad(np.sin, argnum=0),
            "gt.grad() got an unexpected keyword argument 'argnum': did you mean argnums?",
        ),
        (lambda: gt.value_and_grad(np.sin, wrt=0), "did you mean argnums?"),
        (lambda: gt.jit(np.sin, static_argnum=1), "did you mean static_argnums?"),
        (lambda: gt.jit(static_argname="n"), "did you mean static_argnames?"),
        (lambda: gt.jit(np.sin, loops="compile"), 'it is a setting: gt.config.loops = "compile"'),
        (lambda: gt.vmap(np.sin, in_axis=0), "did you mean in_axes?"),
        (lambda: gt.jacobian(np.sin, create_graph=True), "derivatives can be differentiated as they are"),
        (
            lambda: gt.hvp(np.sin, (1.0,), (1.0,), frobnicate=1),
            "its options are primals, tangents, holomorphic",
        ),
        (lambda: gt.while_loop(bool, abs, 1, max_iteration=3), "did you mean max_iterations?"),
        (
            lambda: gt.optimizers.SGD(lr=0.1),
            "SGD() got an unexpected keyword argument 'lr': did you mean learning_rate?",
        ),
        (lambda: gt.optimizers.Adam(0.1, betas=(0.9, 0.99)), "beta_1 and beta_2"),
        (lambda: gt.optimizers.RMSprop(alpha=0.9), "did you mean rho?"),
        (
            lambda: gt.nlp(np.sum, PAIR, bound=(0, 1)),
            "gt.nlp() got an unexpected keyword argument 'bound': did you mean bounds?",
        ),
        (
            lambda: gt.scipy.minimize(np.sum, PAIR, option={}),
            "gt.scipy.minimize() got an unexpected keyword argument 'option': did you mean options?",
        ),
        (lambda: gt.debug.kinks(np.abs, 1.0, nears=1.0), "gt.debug.kinks() got"),
        (lambda: gt.GradientTape(persitent=True), "gt.GradientTape() got an unexpected keyword argument"),
        (lambda: gt.GradientTape().gradient(1, 2, unconnected_gradient="zero"), "tape.gradient() got"),
        (lambda: gt.Variable(1.0, trainble=False), "gt.Variable() got an unexpected keyword argument"),
        (lambda: gt.gather(PAIR, [1], axes=0), "gt.gather() got an unexpected keyword argument 'axes'"),
        (lambda: gt.cond(True, abs, abs, true_function=abs), "its options are true_fn, false_fn"),
        (lambda: gt.checkpoint(np.sin, policy="dots"), "leave it out: all of the function is recomputed"),
        (lambda: gt.gradients(1.0, 2.0, grad_y=1.0), "did you mean grad_ys?"),
        (lambda: gt.scipy.curve_fit(np.add, PAIR, PAIR, sigmma=1), "did you mean sigma?"),
        (lambda: gt.scipy.curve_fit(np.add, PAIR, PAIR, jac="2-point"), "gradtape computes the derivatives"),
        (lambda: gt.scipy.least_squares(np.sin, PAIR, los="huber"), "did you mean loss?"),
        (lambda: gt.expectation(np.sin, rgn=0), "did you mean rng?"),
        (lambda: gt.solve_sde(np.sin, np.sin, PAIR, PAIR, save_at=0), "gt.solve_sde() got"),
        (lambda: gt.spec(3, dtyp=float), "did you mean dtype?"),
    ],
)
def test_unknown_options_of_transforms(call: Any, answer: str) -> None:
    expect(TypeError, call, "got an unexpected keyword argument", answer)


def test_errors_of_the_users_functions_keep_their_words() -> None:
    def f(x: Any, *, scale: float) -> Any:
        return x * scale

    error = expect(TypeError, lambda: gt.jvp(lambda x: f(x, scal=2.0), (1.0,), (1.0,)), "scal")
    assert "gt.jvp" not in str(error)


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (lambda: gt.scipy.minimize(np.sum, PAIR, method="L-BFGS"), "did you mean 'L-BFGS-B'?"),
        (lambda: gt.scipy.minimize(np.sum, PAIR, method="LBFGS"), "did you mean 'L-BFGS-B'?"),
        (lambda: gt.scipy.minimize(np.sum, PAIR, method="bgfs"), "did you mean 'BFGS'?"),
        (lambda: gt.scipy.root(np.sin, PAIR, method="hybrd"), "did you mean 'hybr'?"),
        (lambda: gt.scipy.least_squares(np.sin, PAIR, method="levenberg"), "choose 'trf', 'dogbox', 'lm'"),
    ],
)
def test_unknown_methods_of_solvers(call: Any, answer: str) -> None:
    expect(gt.errors.ArgumentError, call, "has no method", answer)


def test_exports_without_descriptions_name_them() -> None:
    expect(gt.errors.ArgumentError, lambda: gt.export(lambda x: x, path="f.c"), "'x'", "gt.spec((3, 4))")
    expect(
        gt.errors.ArgumentError,
        lambda: gt.source(gt.grad(lambda x: x)),
        "'x'",
        "gt.source(f, gt.spec((3, 4)))",
    )


def test_floats_are_not_indices() -> None:
    f = gt.jit(lambda x, n: sum(x[i] for i in range(n)))
    expect(TypeError, lambda: f(PAIR, 2.0), "object cannot be interpreted as an integer")


def test_formatted_numbers_of_a_trace_name_the_way_to_print_them() -> None:
    texts: list[str] = []

    @gt.jit
    def f(x: Any) -> Any:
        texts.append(f"{np.sum(x):.3f}")
        return x

    f(PAIR)
    assert "gt.print" in texts[0]


def test_functions_of_other_libraries_name_those_of_numpy() -> None:
    jnp = pytest.importorskip("jax.numpy", reason="pip install jax")
    for way in (gt.jit, gt.grad):
        with pytest.raises(TypeError) as caught:
            way(lambda x: jnp.sum(x))(PAIR)
        notes = "\n".join(caught.value.__notes__)
        assert "np.sum(...)" in notes and "jax computes with its own arrays" in notes


def test_errors_of_calls_inside_are_left_alone() -> None:
    def scan(carry: float) -> float:
        return carry

    error = expect(TypeError, lambda: gt.scan(lambda c, x: scan(), 0.0, PAIR), "missing 1 required")  # type: ignore[call-arg]
    assert "its arguments are" not in str(error)


def test_keywords_of_other_libraries_in_numpys_functions() -> None:
    for call, remedy in (
        (lambda x: np.mean(x, dim=0), "np.mean has axis=0"),
        (lambda x: np.sum(x, keepdim=True), "np.sum has keepdims"),
    ):
        error = expect(TypeError, lambda call=call: gt.jit(call)(PAIR), "unexpected keyword argument")
        assert any(f"what to do: {remedy}" in note for note in error.__notes__)
    own = expect(TypeError, lambda: gt.jit(lambda x: (lambda y: y)(dim=x))(PAIR), "dim")  # type: ignore[call-arg]
    assert not hasattr(own, "__notes__")


def test_settings_of_other_libraries() -> None:
    expect(
        AttributeError,
        lambda: gt.config.jax_enable_x64,
        "no setting 'jax_enable_x64': float64 is the default",
    )
    expect(AttributeError, lambda: gt.config.update("eager", True), "assign: gt.config.num_threads = 4")


def test_static_names() -> None:
    def power(x: Any, n: int = 1, *, extra: int = 0) -> Any:
        return x**n + extra

    def check(expected: Any, traces: int, *args: Any, **kwargs: Any) -> None:
        np.testing.assert_allclose(f(PAIR, *args, **kwargs), expected)
        assert f": {traces} trace" in repr(f)

    f = gt.jit(power, static_argnames=("n", "extra"))
    check(PAIR**2, 1, 2)
    check(PAIR**3, 2, 3)
    check(PAIR**2, 2, 2)
    check(PAIR**3 + 1, 3, 3, extra=1)
    np.testing.assert_allclose(gt.grad(lambda x: np.sum(f(x, 2)))(PAIR), 2 * PAIR)
    expect(
        ValueError, lambda: gt.jit(power, static_argnames="m"), "has 'm'", "its parameters are x, n, extra"
    )
    expect(ValueError, lambda: gt.jit(power, static_argnames="extr"), "static_argnames='extra'")
    assert gt.jit(lambda **options: options["m"], static_argnames="m")(m=2) == 2
    np.testing.assert_allclose(gt.jit(np.sin, static_argnames="where")(PAIR), np.sin(PAIR))


def test_lists_of_lengths_that_depend_on_data() -> None:
    @gt.jit
    @numba.njit
    def ones(x: Any) -> Any:
        return np.sum(np.array([1.0] * int(np.sum(x))))

    assert float(ones(PAIR)) == int(np.sum(PAIR))
    assert "the length of a list depends on data" in str(gt.inspect.explain(ones))


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (lambda: gt.hvp(np.sum, PAIR), "its arguments are gt.hvp(function, primals, tangents)"),
        (
            lambda: gt.scan(abs),
            "missing 1 required positional argument: 'init': its arguments are gt.scan(f, init, xs",
        ),
        (lambda: gt.optimizers.Adam([PAIR], learning_rate=0.1), "gt.optimizers.Adam(learning_rate, beta_1"),
        (lambda: gt.jit(np.sin, 1), "takes from 0 to 1 positional arguments but 2 were given"),
        (lambda: gt.GradientTape().gradient(1), "tape.gradient(target, sources, output_gradients"),
    ],
)
def test_missing_arguments_of_transforms(call: Any, answer: str) -> None:
    expect(TypeError, call, "its arguments are ", answer)
