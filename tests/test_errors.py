"""Every error and warning has a page, a place in the tree, a program that raises it, a message that helps."""

from __future__ import annotations

import inspect
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numba
import numpy as np
import pytest

import gradtape as gt
from gradtape import errors

PAGES = Path(__file__).resolve().parents[1] / "docs" / "reference" / "errors"
CLASSES = {
    name: found
    for name, found in vars(errors).items()
    if inspect.isclass(found) and found.__module__ == errors.__name__
}
ERRORS = [name for name, found in CLASSES.items() if issubclass(found, errors.GradtapeError)]
WARNINGS = [name for name, found in CLASSES.items() if issubclass(found, errors.GradtapeWarning)]

Program = Callable[[], Any]
PROGRAMS: dict[str, Program] = {}
PAIR = np.array([1.0, 2.0])


def raises(name: str) -> Callable[[Program], Program]:
    """Enter a program that ends with this error or warning."""

    def enter(program: Program) -> Program:
        PROGRAMS[name] = program
        return program

    return enter


@raises("GradtapeError")
@raises("ArgumentError")
def an_argument_that_does_not_exist() -> None:
    gt.grad(np.sum, argnums=1)(PAIR)


@raises("ShapeError")
def shapes_that_do_not_fit() -> None:
    gt.jit(lambda x, y: x + y)(PAIR, np.ones(3))


@raises("StructureError")
def a_cotangent_of_another_structure() -> None:
    _, pullback = gt.vjp(lambda x: (x, x), PAIR)
    pullback([PAIR])


@raises("RuleError")
def a_gradient_function_that_returns_too_much() -> None:
    gt.grad(gt.custom_gradient(lambda x: (np.sum(x), lambda upstream: (upstream, upstream))))(PAIR)


@raises("UnconnectedError")
def a_source_without_a_path() -> None:
    with gt.GradientTape() as tape:
        x, y = tape.watch((PAIR, PAIR))
        z = np.sum(x)
    tape.gradient(z, y, unconnected_gradients="raise")


@raises("DtypeError")
def an_array_of_objects() -> None:
    gt.jit(np.sum)(np.array([1.0, None]))


@raises("IntegerInputError")
def a_gradient_in_integers() -> None:
    gt.grad(np.sum)(np.arange(3))


@raises("StaticArgumentError")
def a_static_argument_without_hash() -> None:
    gt.jit(lambda x, skipped: x)(PAIR, {1, 2})


@raises("ArraySubclassError")
def a_masked_array() -> None:
    gt.jit(np.sum)(np.ma.masked_invalid(PAIR))


@raises("NonScalarOutputError")
def a_gradient_of_two_numbers() -> None:
    gt.grad(np.sin)(PAIR)


@raises("SingularJacobianError")
def a_root_of_equations_that_depend_on_each_other() -> None:
    from scipy.optimize import fsolve

    def root(p: Any) -> Any:
        return np.sum(fsolve(lambda x: np.array([x[0] + x[1] - p, 2 * x[0] + 2 * x[1] - 2 * p]), np.zeros(2)))

    gt.grad(root)(1.0)


@raises("UnsupportedFunctionError")
def an_object_function_in_jit() -> None:
    gt.jit(lambda x: np.frompyfunc(abs, 1, 1)(x))(PAIR)


@raises("UnsupportedCodeError")
def text_in_compiled_code() -> None:
    @numba.njit
    def spelt(x: Any) -> Any:
        return float(str(x))

    gt.grad(spelt)(1.0)


@raises("ConcretizationError")
def a_number_taken_out() -> None:
    gt.jit(lambda x: x.numpy())(1.0)


@raises("InPlaceError")
def a_read_only_view() -> None:
    @gt.jit
    def unit_diagonal(x: Any) -> Any:
        np.diagonal(x)[:] = 1.0
        return x

    unit_diagonal(np.ones((2, 2)))


@raises("CastError")
def floats_written_into_integers() -> None:
    @gt.jit
    def shifted(x: Any) -> Any:
        x += 0.5
        return x

    shifted(np.arange(3))


@raises("NotDifferentiableError")
def a_function_without_derivative() -> None:
    gt.grad(lambda z: np.real(np.sign(z)))(1.0 + 2.0j)


@raises("MemoryBudgetError")
def a_loop_that_carries_more_than_the_budget() -> None:
    with gt.config.override(memory="10 kB"):
        gt.grad(lambda x: np.sum(gt.fori_loop(0, 100, lambda _, x: np.sin(x), x)))(np.ones(1000))


@raises("UnknownGradientError")
def a_gradient_that_nobody_watched() -> None:
    gt.debug.GradientsDebugger().gradient_tensor("hidden")


@raises("NumericsError")
def the_logarithm_of_zero() -> None:
    with gt.debug.check_numerics():
        gt.jit(lambda x: np.sum(np.log(x)))(PAIR - 1.0)


@raises("TapeError")
def a_record_used_twice() -> None:
    with gt.GradientTape() as tape:
        x = tape.watch(PAIR)
        y = np.sum(x)
    for _ in range(2):
        tape.gradient(y, x)


@raises("LeakedValueError")
def a_value_kept_outside() -> None:
    @gt.jit
    def refused(x: Any) -> Any:
        raise KeyError(x * 2)

    try:
        refused(PAIR)
    except KeyError as error:
        print(error.args[0])


@raises("GradientCheckError")
def a_derivative_that_is_cut() -> None:
    gt.check_grads(lambda x: x * gt.stop_gradient(x), (3.0,))


@raises("InternalError")
def a_rule_with_too_many_tangents() -> None:
    from gradtape.ir.graph import constant
    from gradtape.kinds.elementwise import Elementwise
    from gradtape.transforms.vjp import vjp

    class Broken(Elementwise):
        def jvp(self, node: Any, tangents: Any) -> Any:
            return tangents[0], tangents[0]

    row = Broken("broken", np.positive, body=lambda x: x, tangents=(lambda d, z, x: d,))
    x = constant(PAIR)
    vjp([row(x)], [x], [x], lambda value: False)


@raises("VerifyError")
def an_output_that_nothing_makes() -> None:
    from gradtape.ir.graph import Graph, Value
    from gradtape.ir.types import aval
    from gradtape.ir.verifier import verify

    verify(Graph([], [], [Value(aval((2,), np.dtype(float)))]), "made up")


@raises("CompileBudgetError")
def a_pass_that_takes_back_what_it_did() -> None:
    from gradtape.ir.budget import budget
    from gradtape.ir.graph import Graph, Value
    from gradtape.ir.types import aval
    from gradtape.ops.core.elementwise.arithmetic import negative
    from gradtape.passes.rewrite import rewrite

    x = Value(aval((2,), np.dtype(float)))
    y = negative(x)
    assert y.node is not None
    graph = Graph([x], [y.node], [y])
    with budget(graph):
        while True:
            graph = rewrite(graph, lambda node, inputs: node.copy(inputs).outs)


@raises("LoweringError")
def half_precision_in_a_kernel() -> None:
    from gradtape.ir.graph import Graph, Value
    from gradtape.ir.types import aval
    from gradtape.lower.pipeline import lower

    x = Value(aval((2,), np.dtype(np.float16)))
    y = x * 2.0
    assert y.node is not None
    lower(Graph([x], [y.node], [y]))


@raises("GradtapeWarning")
def a_watched_number_in_an_ndarray() -> None:
    y = np.zeros(2)
    with gt.GradientTape() as tape:
        x = tape.watch(PAIR)
        y[0] = x[0]


@raises("TraceLimitWarning")
def more_ways_than_the_limit() -> None:
    repeated = gt.jit(lambda x, n: x * 2.0 ** int(n))
    with gt.config.override(trace_limit=2):
        for n in range(4):
            repeated(1.0, n)


@raises("SideEffectWarning")
def an_iterator_in_a_traced_function() -> None:
    factors = iter([1.0, 2.0])
    gt.jit(lambda x: x * next(factors))(1.0)


@raises("CompileWarning")
def a_compiler_that_fails() -> None:
    failure = mock.patch(
        "gradtape.runtime.compile.kernel.compile_object", side_effect=RuntimeError("out of memory")
    )
    with failure, gt.config.override(disk_cache=False):
        gt.jit(lambda x: x**3 - 0.375)(PAIR)


@raises("CacheWarning")
def a_cache_below_a_file() -> None:
    with (
        tempfile.NamedTemporaryFile() as file,
        gt.config.override(disk_cache=True, cache_dir=f"{file.name}/cache"),
    ):
        gt.jit(lambda x: np.sum(x**3) - 0.125)(PAIR)


@raises("DensifyWarning")
def a_large_array_of_few_rows() -> None:
    gt.asarray(gt.IndexedSlices(np.ones((1, 2)), [3], (10_000_000, 2)))


@raises("LongLoopWarning")
def a_long_loop_on_a_tape() -> None:
    with gt.GradientTape() as tape:
        x = tape.watch(1.5)
        y = x
        for _ in range(26_000):
            y = 0.5 * y + x
    tape.gradient(y, x)


@raises("IntegerWatchWarning")
def integers_on_a_tape() -> None:
    with gt.GradientTape() as tape:
        tape.watch(np.arange(3))


LOCATED = {
    "MemoryBudgetError",
    "LongLoopWarning",
    "ShapeError",
    "DtypeError",
    "IntegerInputError",
    "ArraySubclassError",
    "NonScalarOutputError",
    "UnsupportedFunctionError",
    "UnsupportedCodeError",
    "ConcretizationError",
    "InPlaceError",
    "CastError",
    "TapeError",
    "UnknownGradientError",
    "NumericsError",
    "NotDifferentiableError",
    "ArgumentError",
    "RuleError",
    "StructureError",
    "UnconnectedError",
    "StaticArgumentError",
    "LeakedValueError",
    "GradientCheckError",
    "TraceLimitWarning",
    "GradtapeWarning",
    "IntegerWatchWarning",
}


def lines_of(program: Program) -> range:
    """Return the lines of this file that a program stands in."""
    source, first = inspect.getsourcelines(program)
    return range(first, first + len(source))


@pytest.mark.parametrize("name", CLASSES)
def test_there_is_a_page(name: str) -> None:
    text = (PAGES / f"{name}.md").read_text()
    assert text.startswith(f"# {name}\n")
    assert "\n## What to do\n" in text


def test_there_is_no_page_without_a_class() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} == set(CLASSES)


@pytest.mark.parametrize("name", sorted(set(CLASSES) - {"GradtapeError"}))
def test_the_page_has_a_program_that_ends_so(name: str) -> None:
    verb = "warns" if name in WARNINGS else "raises"
    assert f"```python\n# {verb} {name}\n" in (PAGES / f"{name}.md").read_text()


def test_the_tree_in_the_docstring_is_the_tree_of_classes() -> None:
    drawn: dict[str, tuple[str | None, list[str]]] = {}
    path: list[str] = []
    line = re.compile(
        r"^    (?P<stem>[│├└─ ]*)(?P<name>\w+(?:Error|Warning))(?: \((?P<builtins>\w+(?:, \w+)*)\))?(?:  |$)",
        re.M,
    )
    for found in line.finditer(errors.__doc__ or ""):
        depth = len(found["stem"]) // 4
        path[depth:] = [found["name"]]
        drawn[found["name"]] = (path[depth - 1] if depth else None, (found["builtins"] or "").split(", "))
    assert list(drawn) == list(CLASSES)
    for name, (parent, builtins) in drawn.items():
        bases = [base.__name__ for base in CLASSES[name].__bases__]
        assert bases == [base for base in (parent, *builtins) if base] or (bases, parent) == (
            ["Exception"],
            None,
        )


def test_the_index_lists_the_tree() -> None:
    listed = re.findall(
        r"^ *- \[(\w+)\]\(errors/\1\.md\)(?: \(`(\w+)`\))?:", (PAGES.parent / "errors.md").read_text(), re.M
    )
    assert [name for name, _ in listed] == list(CLASSES)
    for name, builtin in listed:
        assert not builtin or builtin in [base.__name__ for base in CLASSES[name].__bases__]


@pytest.mark.parametrize("name", ERRORS)
def test_it_is_raised_and_says_what_why_and_the_remedy(name: str) -> None:
    with pytest.raises(CLASSES[name]) as caught:
        PROGRAMS[name]()
    error = caught.value
    assert name == "GradtapeError" or type(error) is CLASSES[name]
    assert error.what and "\n" not in error.what
    text = str(error)
    assert text.startswith(error.what)
    for label, part in (("why", error.why), ("what to do", error.remedy)):
        assert (f"\n  {label}: {part}" in text) == bool(part)
    assert text.endswith(f"\n  more: python -m gradtape explain {type(error).__name__}")
    if not issubclass(CLASSES[name], errors.InternalError):
        assert error.remedy


@pytest.mark.parametrize("name", sorted(LOCATED & set(ERRORS)))
def test_it_names_the_line(name: str) -> None:
    with pytest.raises(CLASSES[name]) as caught:
        PROGRAMS[name]()
    where = caught.value.where
    assert where is not None and where.filename == __file__
    assert where.line in lines_of(PROGRAMS[name])
    assert f"\n  where: {__file__}:{where.line} in " in str(caught.value)


@pytest.mark.parametrize("name", WARNINGS)
def test_it_is_warned_of(name: str) -> None:
    with pytest.warns(CLASSES[name]) as caught:
        PROGRAMS[name]()
    (warning,) = caught
    assert warning.category is CLASSES[name]
    assert warning.filename == __file__
    assert warning.lineno in lines_of(PROGRAMS[name])
    text = str(warning.message)
    assert "\n  what to do: " in text and text.endswith(f"\n  more: python -m gradtape explain {name}")
    if name in LOCATED:
        (line,) = re.findall(rf"\n  where: {re.escape(__file__)}:(\d+) in ", text)
        assert int(line) in lines_of(PROGRAMS[name])


@pytest.mark.parametrize("name", ERRORS)
def test_it_is_pythons_own_error_too(name: str) -> None:
    assert name == "GradtapeError" or any(
        base.__module__ == "builtins" and base is not Exception and issubclass(base, Exception)
        for base in CLASSES[name].__mro__[1:-3]
    )


def test_pages_of_errors_are_printed_by_a_command(capsys):
    """By the name of the class, by its place in the package, and by the link that a message prints; a misspelling is answered."""
    from gradtape.__main__ import main

    for name in ("NumericsError", "gradtape.errors.NumericsError", "docs/reference/errors/NumericsError.md"):
        assert main(["explain", name]) == 0
        assert capsys.readouterr().out.startswith("# NumericsError\n")
    assert main(["explain"]) == 0
    assert "ShapeError" in capsys.readouterr().out.splitlines()
    assert main(["explain", "NumericError"]) == 2
    assert "did you mean NumericsError?" in capsys.readouterr().err


def test_the_command_without_arguments_prints_its_help(capsys):
    from gradtape.__main__ import main

    assert main([]) == 0
    assert "check" in capsys.readouterr().out
    assert main(["doctor"]) == 0
    assert f"gradtape:      {gt.__version__}" in capsys.readouterr().out
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out == f"gradtape {gt.__version__}\n"
