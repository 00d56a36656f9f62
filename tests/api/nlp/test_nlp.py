"""`nlp`: known optima, multipliers, derivatives of solutions, warm starts, limits, mistakes."""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

import gradtape as gt
from gradtape.api.nlp import ipopt, program
from gradtape.api.nlp.derivatives import Compiled, Derivatives
from gradtape.api.nlp.solution import REMEDIES
from gradtape.api.solvers.optimality import check_constraint
from gradtape.errors import (
    ArgumentError,
    DtypeError,
    GradtapeWarning,
    NonScalarOutputError,
    NumericsError,
    ShapeError,
)
from gradtape.runtime.compile import program as runtime_program
from tests.api.nlp.problems import PROBLEMS

NO_IPOPT = "IPOPT is not installed (pip install gradtape[ipopt])"
SOLVERS = [
    pytest.param("ipopt", marks=pytest.mark.skipif(ipopt.library() is None, reason=NO_IPOPT)),
    "trust-constr",
]


@pytest.fixture(params=SOLVERS)
def solver(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.parametrize("number", PROBLEMS)
def test_optima_of_hock_and_schittkowski(number: int, solver: Any) -> None:
    problem = PROBLEMS[number]
    found = gt.nlp(
        problem.objective,
        np.array(problem.start, float),
        constraints=problem.constraints(),
        bounds=problem.bounds,
        solver=solver,
        max_iterations=2000,
    )
    assert found.success
    np.testing.assert_allclose(found.fun, problem.best, rtol=2e-6, atol=2e-6)
    assert found.violation < 1e-6


def perturbed(number: int, p: Any, solver: Any) -> Any:
    """Solve a problem with other prices, constraints and bounds."""
    problem = PROBLEMS[number]
    weights = np.linspace(1.0, 2.0, len(problem.start))

    def shifted(function: Any) -> Any:
        return lambda x: function(x) - p[1]

    rows = [one | {"fun": shifted(one["fun"])} for one in problem.constraints()]
    bounds = None if problem.bounds is None else (problem.bounds[0] + p[2], problem.bounds[1] + p[2])
    return gt.nlp(
        lambda x: problem.objective(x) + p[0] * np.sum(weights * x),
        np.array(problem.start, float),
        constraints=rows,
        bounds=bounds,
        solver=solver,
        tol=1e-10,
    )


def check_sensitivities(number: int, solver: Any, rough: float) -> None:
    def solution(p: Any) -> Any:
        found = perturbed(number, p, solver)
        return np.concatenate([found.x, *found.duals])

    at, step = np.array([0.01, 0.02, 0.01]), 1e-4
    columns = [(solution(at + step * e) - solution(at - step * e)) / (2 * step) for e in np.eye(3)]
    scale = np.max(np.abs(columns))
    np.testing.assert_allclose(
        gt.jacobian(solution)(at), np.stack(columns, 1), rtol=rough, atol=rough * scale
    )


@pytest.mark.skipif(ipopt.library() is None, reason=NO_IPOPT)
@pytest.mark.parametrize("number", PROBLEMS)
def test_sensitivities_against_differences(number: int) -> None:
    check_sensitivities(number, "ipopt", 2e-5 if number == 27 else 5e-6)  # its third derivatives are large


@pytest.mark.parametrize("number", [7, 34, 43, 65, 71, 100])
def test_sensitivities_by_scipy_against_differences(number: int) -> None:
    check_sensitivities(number, "trust-constr", 2e-3)


def rectangle(p: Any, solver: Any, **more: Any) -> Any:
    """The sides of a rectangle of area 4 with the smallest sum ``p * a + b``: ``a = 2 / sqrt(p)``."""
    area = {"type": "eq", "fun": lambda x: x["a"] * x["b"] - 4}
    start = {"a": 1.0, "b": 1.0}
    return gt.nlp(
        lambda x, p: p * x["a"] + x["b"],
        start,
        p,
        constraints=area,
        bounds=(0.1, 10.0),
        solver=solver,
        tol=1e-10,
        **more,
    )


def test_derivatives_of_first_and_second_order_in_all_modes(solver: Any) -> None:
    def side(p: Any) -> Any:
        return rectangle(p, solver).x["a"]

    p = 4.0
    first, second = -(p**-1.5), 1.5 * p**-2.5
    rough = 1e-4
    np.testing.assert_allclose(gt.grad(side)(p), first, rtol=rough)
    np.testing.assert_allclose(gt.jvp(side, (p,), (1.0,))[1], first, rtol=rough)
    np.testing.assert_allclose(gt.grad(gt.grad(side))(p), second, rtol=rough)
    compiled = gt.jit(gt.value_and_grad(side))
    for one in (4.0, 9.0):
        np.testing.assert_allclose(compiled(one), (2 / np.sqrt(one), -(one**-1.5)), rtol=rough)
    several = np.array([1.0, 4.0, 9.0])
    np.testing.assert_allclose(gt.vmap(gt.grad(side))(several), -(several**-1.5), rtol=rough)
    np.testing.assert_allclose(gt.grad(lambda p: rectangle(p, solver).fun)(p), 2 / np.sqrt(p), rtol=rough)
    np.testing.assert_allclose(
        gt.grad(lambda p: rectangle(p, solver).duals[0][0])(p), -0.5 * p**-0.5 / 2, rtol=rough
    )


def test_third_derivatives(solver: Any) -> None:
    p, rough = 4.0, 1e-4

    def side(p: Any) -> Any:
        return rectangle(p, solver).x["a"]

    third = -15 / 4 * p**-3.5
    np.testing.assert_allclose(gt.grad(gt.grad(gt.grad(side)))(p), third, rtol=rough)
    np.testing.assert_allclose(gt.jvp(gt.grad(gt.grad(side)), (p,), (1.0,))[1], third, rtol=rough)
    best = gt.grad(gt.grad(gt.grad(lambda p: rectangle(p, solver).fun)))(p)
    np.testing.assert_allclose(best, 1.5 * p**-2.5, rtol=rough)


def test_multipliers_are_derivatives_in_limits(solver: Any) -> None:
    def value(limits: Any) -> Any:
        row = scipy.optimize.NonlinearConstraint(lambda x: x[0] + x[1], -np.inf, limits[0])
        return gt.nlp(
            lambda x: np.sum((x - np.array([3.0, 1.0])) ** 2),
            np.zeros(2),
            constraints=row,
            bounds=(np.stack([limits[1], limits[1]]), np.inf),
            solver=solver,
            tol=1e-10,
        )

    limits = np.array([2.0, 0.5])
    found = value(limits)
    slopes = gt.grad(lambda limits: value(limits).fun)(limits)
    np.testing.assert_allclose(found.x, [1.5, 0.5], atol=1e-4)
    np.testing.assert_allclose(found.duals[0], [3.0], rtol=1e-3)
    np.testing.assert_allclose(found.bound_duals[0], [0.0, 2.0], atol=1e-3)
    np.testing.assert_allclose(slopes, [-3.0, 2.0], rtol=1e-3)


def chain(count: int, load: Any, solver: Any) -> Any:
    """Points on springs that pull up and down by turns, in nested unknowns; those that are pulled down are on a floor."""
    pull = np.where(np.arange(count) % 2, 1.0, -1.0)
    return gt.nlp(
        lambda x, load: np.sum((x["y"] - load * pull) ** 2) + 0.2 * np.sum((x["y"][1:] - x["y"][:-1]) ** 4),
        {"y": np.zeros(count)},
        (load,),
        constraints={"type": "eq", "fun": lambda x: (x["y"][0] * x["y"][1], x["y"][-1] - x["y"][-3])},
        bounds=(-0.3, np.inf),
        solver=solver,
        tol=1e-9,
    )


@pytest.mark.skipif(ipopt.library() is None, reason=NO_IPOPT)
def test_many_unknowns_have_sparse_equations() -> None:
    count = 700

    def lowest(load: Any) -> Any:
        return np.sum(chain(count, load, "ipopt").x["y"] ** 2)

    load = 2.0
    slope = gt.grad(lowest)(load)
    h = 1e-3
    plain = (lowest(load + h) - lowest(load - h)) / (2 * h)
    np.testing.assert_allclose(slope, plain, rtol=1e-4)
    for forward in (lambda f: gt.jvp(f, (load,), (1.0,))[1], lambda f: gt.jit(gt.jacfwd(f))(load)):
        np.testing.assert_allclose(forward(lowest), slope, rtol=1e-9)
    curvature = (gt.grad(lowest)(load + h) - gt.grad(lowest)(load - h)) / (2 * h)
    np.testing.assert_allclose(gt.grad(gt.grad(lowest))(load), curvature, rtol=1e-3)
    np.testing.assert_allclose(
        gt.vmap(gt.grad(lowest))(np.array([load, 1.5])), [slope, gt.grad(lowest)(1.5)], rtol=1e-7
    )


def test_solutions_are_not_outside_of_bounds(solver: Any) -> None:
    low, high = np.array([0.0, -2.0, 1.0]), np.array([1.0, 5.0, 3.0])
    slope = np.array([1.0, -1.0, 1.0])
    found = gt.nlp(lambda x: np.sum(slope * x), np.full(3, 2.0), bounds=(low, high), solver=solver)
    assert np.all(found.x >= low) and np.all(found.x <= high)
    np.testing.assert_allclose(found.x, [0.0, 5.0, 1.0], atol=1e-6)


def test_linear_constraints_take_the_vector_of_unknowns(solver: Any) -> None:
    matrix = np.array([[1.0, 2.0, 3.0]])
    expected = matrix[0] / np.sum(matrix**2)
    for kind in (matrix, scipy.sparse.csr_array(matrix)):
        found = gt.nlp(
            lambda x: np.sum(x[0] ** 2) + x[1] ** 2,
            (np.ones(2), 1.0),
            constraints=scipy.optimize.LinearConstraint(kind, 1.0, 1.0),
            solver=solver,
        )
        np.testing.assert_allclose([*found.x[0], found.x[1]], expected, atol=1e-6)


def test_warm_starts_need_fewer_iterations(solver: Any) -> None:
    first = rectangle(4.0, solver)
    area = {"type": "eq", "fun": lambda x: x["a"] * x["b"] - 4}
    made = [
        gt.nlp(
            lambda x, p: p * x["a"] + x["b"],
            start,
            4.01,
            constraints=area,
            bounds=(0.1, 10.0),
            warm_start=warm,
            solver=solver,
        )
        for start, warm in (({"a": 1.0, "b": 1.0}, None), (first.x, first))
    ]
    assert made[1].iterations < made[0].iterations
    np.testing.assert_allclose(made[1].x["a"], 2 / np.sqrt(4.01), rtol=1e-5)


def test_log_callback_and_limits(solver: Any) -> None:
    rows: list[Any] = []
    found = rectangle(4.0, solver, callback=rows.append)
    assert len(found.log) == len(rows) == found.iterations > 1
    assert found.log["violation"][-1] < 1e-6
    assert "solved by" in repr(found) and "violation" in repr(found)
    with pytest.warns(GradtapeWarning, match="stopped by the callback"):
        assert not rectangle(4.0, solver, callback=lambda row: True).success
    with pytest.warns(GradtapeWarning, match="stopped by the callback"):
        stopped = rectangle(4.0, solver, callback=lambda row: row["iteration"] >= 1)
    assert len(stopped.log) < len(found.log)
    with pytest.warns(GradtapeWarning, match="not found a solution"):
        assert not rectangle(4.0, solver, max_iterations=2).success
    with pytest.warns(GradtapeWarning, match="out of time"):
        slow = rectangle(4.0, solver, time_limit=0.01, callback=lambda row: time.sleep(0.02))
    assert not slow.success


def test_errors_of_the_callback_pass_through_the_solver(solver: Any) -> None:
    def refuse(row: Any) -> None:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        rectangle(4.0, solver, callback=refuse)


def test_infeasible_constraints_are_named(solver: Any) -> None:
    def sum_of_all(x: Any) -> Any:
        return np.stack([x[0] - x[1], np.sum(x) - 5.0])

    with pytest.warns(
        GradtapeWarning, match=r"constraint 0, sum_of_all \(.*test_nlp.py:\d+\), element 1 is violated"
    ):
        found = gt.nlp(
            lambda x: np.sum(x**2),
            np.zeros(2),
            constraints={"type": "eq", "fun": sum_of_all},
            bounds=(0.0, 1.0),
            solver=solver,
            max_iterations=200,
        )
    assert not found.success


def test_numbers_that_are_not_finite_are_named() -> None:
    def logarithm(x: Any) -> Any:
        return np.log(x)

    with pytest.raises(NumericsError, match=r"constraint 0, logarithm .* element 1 is nan at x0") as caught:
        gt.nlp(
            lambda x: np.sum(x),
            np.array([1.0, -1.0]),
            constraints={"type": "ineq", "fun": logarithm},
            solver="trust-constr",
        )
    assert "log gave nan" in str(caught.value.__cause__)


@pytest.mark.parametrize("transform", [gt.grad, gt.jit, lambda f: gt.jit(gt.grad(f))])
def test_numbers_that_are_not_finite_are_named_where_derivatives_are_taken(
    transform: Any, solver: Any
) -> None:
    def logarithm(x: Any) -> Any:
        return np.log(x)

    def best(p: Any) -> Any:
        rows = {"type": "ineq", "fun": logarithm}
        return gt.nlp(lambda x: p * np.sum(x), np.array([1.0, -1.0]), constraints=rows, solver=solver).fun

    with pytest.raises(
        NumericsError, match=r"constraint 0, logarithm .*test_nlp.py:\d+.* element 1 is nan at x0"
    ):
        transform(best)(2.0)


def test_a_limit_without_a_push_is_said(solver: Any) -> None:
    def solution(p: Any) -> Any:
        return gt.nlp(lambda x: np.sum((x - p) ** 2), np.ones(2), bounds=(0.0, 3.0), solver=solver).x

    with pytest.warns(GradtapeWarning, match="multiplier of zero"):
        gt.jacobian(solution)(np.array([0.0, 1.0]))


def test_derivatives_are_taken_without_a_warning(solver: Any) -> None:
    weights = np.array([0.5, 2.0])

    def closest(p: Any) -> Any:
        line = {"type": "eq", "fun": lambda x: np.sum(x) - 1.0}
        found = gt.nlp(lambda x: np.sum((x - p * weights) ** 2), np.zeros(2), constraints=line, solver=solver)
        return np.sum(found.x**2)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(gt.grad(closest)(1.1), 2.475, rtol=1e-5)
        np.testing.assert_allclose(gt.jvp(closest, (1.1,), (1.0,))[1], 2.475, rtol=1e-5)


@pytest.mark.parametrize("pairs", [[(0, 1)], [(0, 1)] * 3, [(0, 1, 2)] * 2, [0, 1]])
def test_pairs_that_are_not_one_for_each_unknown(pairs: Any, solver: Any) -> None:
    with pytest.raises(ShapeError, match="one pair for each of 2 unknowns"):
        gt.nlp(lambda x: np.sum(x**2), np.ones(2), bounds=pairs, solver=solver)


@pytest.mark.parametrize(
    "arguments, error, match",
    [
        ({"warm_start": np.ones(2)}, ArgumentError, "warm_start is an ndarray"),
        ({"constraints": 3}, ArgumentError, "a constraint is an int"),
        (
            {"constraints": {"type": "equal", "fun": np.sum}},
            ArgumentError,
            "a constraint has the type 'equal'",
        ),
        ({"constraints": {"type": "eq", "func": np.sum}}, ArgumentError, "has the unknown key 'func'"),
        (
            {"constraints": {"type": "eq", "fun": np.sum, "arg": 3.0}},
            ArgumentError,
            "(?s)has the unknown key 'arg'.*did you mean 'args'",
        ),
        ({"constraints": {"type": "eq"}}, ArgumentError, "a constraint has no 'fun'"),
        ({"constraints": {"fun": np.sum}}, ArgumentError, "a constraint has no 'type'"),
        ({"constraints": {"type": "eq", "fun": 3}}, ArgumentError, "int"),
        ({"constraints": [[]]}, ArgumentError, "a constraint is a list"),
        ({"time_limit": -1.0}, ArgumentError, "time_limit is -1.0"),
        ({"solver": "simplex"}, ArgumentError, "solver is 'simplex'"),
        ({"bounds": (2.0, 1.0)}, ArgumentError, "lower bound of unknown 0"),
        ({"objective": lambda x: x}, NonScalarOutputError, "returned an array"),
        ({"x0": []}, ArgumentError, "x0 has no unknowns"),
        ({"options": {"speed": "high"}}, ArgumentError, "trust-constr has no option speed"),
        (
            {"constraints": scipy.optimize.NonlinearConstraint(lambda x: x, np.zeros(3), 1.0)},
            ShapeError,
            "returns 2 numbers",
        ),
    ],
)
def test_mistakes(arguments: Any, error: Any, match: str) -> None:
    given = {"objective": lambda x: np.sum(x**2), "x0": np.ones(2), "solver": "trust-constr"} | arguments
    with pytest.raises(error, match=match):
        gt.nlp(**given)


@pytest.mark.skipif(ipopt.library() is None, reason=NO_IPOPT)
def test_options_that_ipopt_does_not_know() -> None:
    with pytest.raises(ArgumentError, match="speed"):
        gt.nlp(lambda x: np.sum(x**2), np.ones(2), solver="ipopt", options={"speed": "high"})


@pytest.mark.parametrize(
    "objective, start, match",
    [
        (lambda x: -np.sum(x), np.zeros(2), "the objective may have no lower bound"),
        (lambda x: x[0] ** 3 + x[1] ** 2, -np.ones(2), "the objective may have no lower bound"),
        (lambda x: np.sum(np.sqrt(1 - x)) ** 2 - np.sum(x), np.zeros(2), "is NaN or infinite"),
    ],
)
def test_reasons_why_there_is_no_solution(objective: Any, start: Any, match: str, solver: Any) -> None:
    with pytest.warns(GradtapeWarning, match=match):
        assert not gt.nlp(objective, start, solver=solver, max_iterations=300).success


def test_the_embedded_default_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ipopt, "library", lambda: None)
    program._say_default.cache_clear()
    with pytest.warns(GradtapeWarning, match="trust-constr"):
        assert gt.nlp(lambda x: np.sum(x**2), np.ones(2)).solver == "trust-constr"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gt.nlp(lambda x: np.sum(x**2), np.ones(2))
    with pytest.raises(ArgumentError, match="not installed"):
        gt.nlp(lambda x: np.sum(x**2), np.ones(2), solver="ipopt")


@pytest.mark.parametrize("form", ["two lists", "pairs", "open ends"])
def test_traced_numbers_in_lists_of_bounds(form: str, solver: Any) -> None:
    def second(b: Any) -> Any:
        bounds: Any = {
            "two lists": ([b, 0.0], [5.0, 5.0]),
            "pairs": [(b, 5.0), (0.0, 5.0)],
            "open ends": ([b, None], [None, 5.0]),
        }[form]
        return gt.nlp(
            lambda x: np.sum((x - 1.0) ** 2) + x[0] * x[1], np.full(2, 3.0), bounds=bounds, solver=solver
        ).x[1]

    assert second(1.5) == pytest.approx(0.25, abs=1e-5)
    for transform in (gt.grad, lambda f: gt.jit(gt.grad(f))):
        assert transform(second)(1.5) == pytest.approx(-0.5, abs=1e-5)


@pytest.mark.skipif(ipopt.library() is None, reason=NO_IPOPT)
@pytest.mark.parametrize("level, success", [(0.0, True), (1.0, False)])
def test_constraints_that_read_no_unknown(level: float, success: bool) -> None:
    constraint: Any = {"type": "eq", "fun": lambda x: np.array([level])}
    context: Any = nullcontext() if success else pytest.warns(GradtapeWarning, match="is violated by 1")
    with context:
        found = gt.nlp(lambda x: np.sum((x - 2.0) ** 2), np.ones(2), constraints=constraint)
    assert found.success is success
    np.testing.assert_allclose(found.x, 2.0, rtol=1e-5)


@pytest.mark.parametrize(
    "returned, match",
    [
        (lambda x: None, "returned None"),
        (lambda x: "much", "returned a str"),
        (lambda x: 1j * x[0], "returned complex numbers"),
    ],
)
def test_what_functions_return(returned: Any, match: str) -> None:
    with pytest.raises(DtypeError, match=f"objective {match}"):
        gt.nlp(returned, np.ones(2))
    with pytest.raises(DtypeError, match=rf"the constraint <lambda> \(.*test_nlp.py:\d+\) {match}"):
        gt.nlp(lambda x: np.sum(x**2), np.ones(2), constraints={"type": "eq", "fun": returned})


def test_bounds_of_another_shape() -> None:
    with pytest.raises(
        ShapeError, match=r"lower bounds have an array of shape \(3,\) for unknowns of shape \(2,\)"
    ):
        gt.nlp(lambda x: np.sum(x**2), np.ones(2), bounds=(np.zeros(3), np.ones(3)))


@pytest.mark.skipif(ipopt.library() is None, reason=NO_IPOPT)
@pytest.mark.parametrize(
    "arguments, remedy",
    [
        ({"objective": lambda x: -(x[0] ** 2) + x[1] ** 2}, "pass bounds"),
        ({"objective": lambda x: np.sqrt(x[0]) + x[1] ** 2, "x0": np.array([0.0, 1.0])}, "inside the domain"),
        ({"constraints": {"type": "eq", "fun": lambda x: x[0] ** 2 + 1}}, "contradict each other"),
        (
            {"constraints": {"type": "eq", "fun": lambda x: np.stack([x[0] - 1, x[1] - 1, x[0] - x[1]])}},
            "follow from others",
        ),
        ({"max_iterations": 1}, "larger max_iterations"),
        ({"time_limit": 1e-9}, "larger time_limit"),
        ({"callback": lambda row: True}, "returns True stops the solver"),
        ({"options": {"linear_solver": "ma57", "hsllib": "not there"}}, "options="),
    ],
)
def test_each_failure_has_a_remedy_of_its_own(arguments: Any, remedy: str) -> None:
    def valley(x: Any) -> Any:
        return (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2

    given = {"objective": valley, "x0": np.array([-1.2, 1.0])} | arguments
    with pytest.warns(GradtapeWarning, match=remedy):
        gt.nlp(**given)


@pytest.mark.skipif(ipopt.library() is None, reason=NO_IPOPT)
def test_each_message_of_a_failure_has_a_remedy() -> None:
    """The remedies are found by the messages; only a program that is not valid, which is a mistake of gradtape's, has none."""
    failures = {text for status, text in ipopt.MESSAGES.items() if status not in ipopt.SOLVED}
    assert failures - REMEDIES.keys() == {"the problem is not valid"}


def test_first_solutions_are_interpreted_and_later_ones_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_program, "SECONDS_PER_NODE", 8e-5)

    def circle(x: Any) -> Any:
        return np.stack([x[0] * 1.28125 - x[1], x[0] ** 2 + x[1] ** 2 - 2.65625, x[1] * 1.09375])

    compiled = Compiled(circle)
    functions = Derivatives(compiled, (), np.array([1.0, 2.0]), 2)
    points = np.random.default_rng(0).normal(size=(60, 2))
    with gt.config.override(disk_cache=False):
        found = [(functions.values(x)[1], functions.gradient(x)) for x in points]
    runs = [made.program.interpreted for made in compiled.values.site.specialisations()]
    assert 0 < runs[0] < 60
    for x, (values, gradient) in zip(points, found, strict=True):
        np.testing.assert_allclose(values, circle(x)[1:], rtol=1e-14)
        np.testing.assert_array_equal(gradient, [1.28125, -1.0])
    for x in points[:2]:
        jacobian = functions.jacobian_matrix(x).toarray()
        np.testing.assert_allclose(jacobian, [2 * x, [0.0, 1.09375]], rtol=1e-14)
        hessian = functions.hessian_matrix(x, 1.0, np.array([0.5, 2.0])).toarray()
        np.testing.assert_allclose(hessian, np.eye(2), rtol=1e-14)


@pytest.mark.skipif(ipopt.library() is None, reason=NO_IPOPT)
def test_a_solution_by_ipopt_imports_no_scipy() -> None:
    code = """
import sys, numpy as np, gradtape as gt
turn = {"type": "eq", "fun": lambda x: x[1:] - x[:-1] ** 2 + 0.5}
assert gt.nlp(lambda x: np.sum(x**2), np.ones(40), constraints=turn, bounds=(None, 2.0)).success
print(*sorted(name for name in sys.modules if name.split(".")[0] == "scipy"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not done.stdout.split()


def test_sparse_linear_constraints_stay_sparse() -> None:
    class Sparse(scipy.sparse.csr_array):  # type: ignore[misc, unused-ignore]
        def toarray(self, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError("a matrix of constraints is not to become dense")

    rows = scipy.optimize.LinearConstraint(Sparse(scipy.sparse.eye_array(50)), 0.0, 1.0)
    check_constraint(rows, "gt.nlp")
