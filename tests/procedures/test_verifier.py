"""The verifier of procedures finds what is broken."""

import numpy as np
import pytest

from gradtape.errors import VerifyError
from gradtape.ir.body import Body
from gradtape.ir.graph import Value, extract, literal
from gradtape.ir.types import BOOL, FLOAT64, INT64, aval
from gradtape.ops.core.reductions import reduce_sum
from gradtape.procedures.builder import ProcedureBuilder, leaf
from gradtape.procedures.ir import (
    Allocate,
    Apply,
    Assign,
    Check,
    For,
    If,
    Load,
    Memory,
    Pointer,
    Pop,
    Push,
    Read,
    Span,
    Store,
    Variable,
    While,
)
from gradtape.procedures.verifier import verify_procedure

ZERO = literal(0, INT64)
ONE = literal(1.0, FLOAT64)


def base():
    """Return a builder with an array parameter, a scalar one, an array that is allocated, and a variable."""
    build = ProcedureBuilder("f")
    x, y = build.array("x", (3,)), build.scalar("y")
    return build, x, y, build.allocate("a", 3), build.variable("v", 1.0)


def unknown_value():
    build, x, *_ = base()
    return build, [build.load(x, leaf(INT64))], "is not known"


def unknown_pointer():
    build, *_ = base()
    return build, [build.load(Pointer("p", Memory("p", FLOAT64)), 0)], "pointer p is not known"


def known_in_a_block_alone():
    build, x, *_ = base()
    with build.loop(3) as i:
        inside = build.load(x, i)
    return build, [inside + 1.0], "is not known"


def index_after_the_loop():
    build, *_ = base()
    with build.loop(3) as i:
        pass
    return build, [i + 1], "is not known"


def known_in_the_other_branch():
    build, x, y, a, _ = base()
    with build.branch(y < 1.0) as branch:
        inside = build.load(x, 0)
        build.start_otherwise(branch)
        build.store(a, 0, inside)
    return build, [], "is not known"


def used_before_its_definition():
    build, x, *_ = base()
    value = build.load(x, 0)
    build.body.insert(0, Check(value < 1.0, "ValueError", ""))
    return build, [], "is not known in a Check"


def defined_twice():
    build, x, *_ = base()
    value = build.load(x, 0)
    build.append(Load(value, x, ZERO))
    return build, [], "is defined twice"


def loop_with_an_index_of_another():
    build, *_ = base()
    with build.loop(3) as i:
        pass
    build.append(For(i, literal(3, INT64)))
    return build, [], "is defined twice"


def definition_of_a_computed_value():
    build, x, y, *_ = base()
    build.append(Load(y + 1.0, x, ZERO))
    return build, [], "is defined and computed"


def read_before_assignment():
    build, *_ = base()
    build.append(Read(leaf(float), Variable("w", aval((), FLOAT64))))
    return build, [], "variable w is not assigned on every way"


def assigned_in_one_branch():
    build, _, y, *_ = base()
    with build.branch(y < 1.0):
        w = build.variable("w", 0.0)
    return build, [build.read(w)], "variable w is not assigned on every way"


def assigned_in_a_loop():
    build, *_ = base()
    with build.loop(2):
        w = build.variable("w", 0.0)
    return build, [build.read(w)], "variable w is not assigned on every way"


def assigned_in_the_body_of_a_while():
    build, *_ = base()
    with build.loop_while() as loop:
        build.start_body(loop, literal(False))
        w = build.variable("w", 0.0)
    return build, [build.read(w)], "variable w is not assigned on every way"


def read_before_it_is_assigned_in_the_same_iteration():
    build, *_ = base()
    w = Variable("w", aval((), FLOAT64))
    with build.loop(2):
        build.assign(w, build.read(w) + 1.0)
    return build, [], "variable w is not assigned on every way"


def two_variables_of_one_name():
    build, *_ = base()
    build.append(Assign(Variable("v", aval((), FLOAT64)), ONE))
    return build, [], "two variables are called v"


def two_memories_of_one_name():
    build, *_ = base()
    build.append(Allocate(Pointer("b", Memory("a", FLOAT64)), ZERO))
    return build, [], "two memories are called a"


def assignment_of_another_dtype():
    build, *_, v = base()
    build.append(Assign(v, literal(1, INT64)))
    return build, [], "variable v does not hold"


def assignment_of_another_pointer():
    build, x, _, a, _ = base()
    w = build.variable("w", a)
    build.append(Assign(w, x))
    return build, [], "variable w does not hold x"


def index_of_another_dtype():
    build, x, y, *_ = base()
    build.append(Load(leaf(float), x, y))
    return build, [], "an index is float64, not int64"


def element_of_another_dtype():
    build, *_, a, _ = base()
    build.append(Store(a, ZERO, literal(1, INT64)))
    return build, [], "an element is int64, not float64"


def condition_of_another_dtype():
    build, _, y, *_ = base()
    build.append(If(y))
    return build, [], "a condition is float64, not bool"


def while_condition_of_another_dtype():
    build, _, y, *_ = base()
    build.append(While(y))
    return build, [], "a condition is float64, not bool"


def unknown_condition():
    build, *_ = base()
    build.append(While(leaf(BOOL)))
    return build, [], "is not known in a While"


def count_of_another_dtype():
    build, _, y, *_ = base()
    build.append(For(leaf(INT64), y))
    return build, [], "a count is float64, not int64"


def size_of_another_dtype():
    build, _, y, *_ = base()
    build.append(Allocate(Pointer("b", Memory("b", FLOAT64)), y))
    return build, [], "a size is float64, not int64"


def store_into_a_parameter():
    build, x, *_ = base()
    build.store(x, 0, 1.0)
    return build, [], "the parameter x is written"


def store_into_a_parameter_by_a_variable():
    build, x, *_ = base()
    build.store(build.read(build.variable("p", x)), 0, 1.0)
    return build, [], "the parameter x is written"


def array_among_the_scalars():
    build, *_, a, _ = base()
    build.append(Store(a, ZERO, Value(aval((2,), FLOAT64))))
    return build, [], "is not a scalar"


def reduction_among_the_scalars():
    build, *_, a, _ = base()
    build.append(Store(a, ZERO, reduce_sum(Value(aval((2,), FLOAT64)), axes=(0,))))
    return build, [], "is not elementwise"


def error_that_is_not_built_in():
    build, _, y, *_ = base()
    build.check(y < 1.0, "ShapeError", "")
    return build, [], "ShapeError is not a built-in exception"


def pop_without_push():
    build, _, y, *_ = base()
    build.append(Push((y, y)))
    build.append(Pop((leaf(float),)))
    return build, [], "has no push"


def pop_of_another_dtype():
    build, _, y, *_ = base()
    build.append(Push((y,)))
    build.append(Pop((leaf(INT64),)))
    return build, [], "has no push"


def square():
    x = Value(aval((3,), FLOAT64))
    out = x * x
    return Body([x], extract([out], [x])[0], [out], "square")


def graph_of_another_shape():
    build, x, _, a, _ = base()
    type_ = aval((2,), FLOAT64)
    build.append(Apply(square(), (Span(x, ZERO, type_),), (Span(a, ZERO, type_),)))
    return build, [], r"an operand of f64\[2\] is given for f64\[3\]"


def graph_with_too_few_operands():
    build, *_, a, _ = base()
    build.append(Apply(square(), (), (Span(a, ZERO, aval((3,), FLOAT64)),)))
    return build, [], "not as many as it has"


def graph_into_a_parameter():
    build, x, *_ = base()
    span = Span(x, ZERO, aval((3,), FLOAT64))
    build.append(Apply(square(), (span,), (span,)))
    return build, [], "the parameter x is written"


BROKEN = [
    unknown_value,
    unknown_pointer,
    known_in_a_block_alone,
    index_after_the_loop,
    known_in_the_other_branch,
    used_before_its_definition,
    defined_twice,
    loop_with_an_index_of_another,
    definition_of_a_computed_value,
    read_before_assignment,
    assigned_in_one_branch,
    assigned_in_a_loop,
    assigned_in_the_body_of_a_while,
    read_before_it_is_assigned_in_the_same_iteration,
    two_variables_of_one_name,
    two_memories_of_one_name,
    assignment_of_another_dtype,
    assignment_of_another_pointer,
    index_of_another_dtype,
    element_of_another_dtype,
    condition_of_another_dtype,
    while_condition_of_another_dtype,
    unknown_condition,
    count_of_another_dtype,
    size_of_another_dtype,
    store_into_a_parameter,
    store_into_a_parameter_by_a_variable,
    array_among_the_scalars,
    reduction_among_the_scalars,
    error_that_is_not_built_in,
    pop_without_push,
    pop_of_another_dtype,
    graph_of_another_shape,
    graph_with_too_few_operands,
    graph_into_a_parameter,
]


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: case.__name__)
def test_what_is_broken_is_found(case):
    build, results, message = case()
    with pytest.raises(VerifyError, match=message):
        verify_procedure(build.finish(results))


RESULTS = {
    "the parameter": (lambda x, y, a: [x], [aval((3,), FLOAT64)], "is not allocated outermost"),
    "twice": (lambda x, y, a: [a, a], [aval((3,), FLOAT64)] * 2, "a is a result twice"),
    "dtype": (lambda x, y, a: [a], [aval((3,), INT64)], "a result of i64"),
    "scalar": (lambda x, y, a: [y], [aval((1,), FLOAT64)], "a scalar result has the type"),
    "count": (lambda x, y, a: [y], [], "other types than there are"),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_are_what_they_are_declared_to_be(name):
    results, types, message = RESULTS[name]
    build, x, y, a, _ = base()
    with pytest.raises(VerifyError, match=message):
        verify_procedure(build.finish(results(x, y, a), types))


def test_the_stage_is_named():
    build, results, _ = unknown_value()
    with pytest.raises(VerifyError, match=r"procedure f\n.*after the stage fold"):
        verify_procedure(build.finish(results), "fold")


def test_a_variable_that_every_branch_assigns_can_be_read():
    build, _, y, *_ = base()
    w = Variable("w", aval((), np.dtype(float)))
    with build.branch(y < 1.0) as branch:
        build.assign(w, 1.0)
        build.start_otherwise(branch)
        build.assign(w, y)
    verify_procedure(build.finish([build.read(w)]))


def test_a_variable_that_a_branch_assigns_can_be_read_under_the_same_condition():
    build, _, y, *_ = base()
    condition = y < 1.0
    with build.branch(condition):
        w = build.variable("w", 2.0)
    with build.branch(condition) as branch:
        build.store(build.allocate("b", 1), 0, build.read(w))
    verify_procedure(build.finish([]))
    with build.branch(condition) as branch:
        build.start_otherwise(branch)
        build.store(build.allocate("c", 1), 0, build.read(w))
    with pytest.raises(VerifyError, match="variable w is not assigned on every way"):
        verify_procedure(build.finish([]))


def test_with_a_tape_some_assignment_before_the_read_has_to_do():
    build, _, y, *_ = base()
    build.append(Push((y < 1.0,)))
    with build.branch(y < 1.0):
        w = build.variable("w", 2.0)
    condition = leaf(bool)
    build.append(Pop((condition,)))
    with build.branch(condition):
        build.store(build.allocate("b", 1), 0, build.read(w))
    verify_procedure(build.finish([]))
    build.append(Read(leaf(float), Variable("z", aval((), FLOAT64))))
    with pytest.raises(VerifyError, match="variable z is not assigned"):
        verify_procedure(build.finish([]))
