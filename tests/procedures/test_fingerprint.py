"""Digests of procedures tell what differs and nothing else."""

import itertools

import pytest

from gradtape.procedures.builder import ProcedureBuilder
from gradtape.procedures.fingerprint import procedure_digest
from tests.support.procedure_samples import PROCEDURES


@pytest.mark.parametrize("sample", PROCEDURES, ids=lambda sample: sample.__name__)
def test_the_digest_of_a_procedure_that_is_built_again_is_the_same(sample):
    assert procedure_digest(sample()[0]) == procedure_digest(sample()[0])


def test_samples_differ():
    digests = [procedure_digest(sample()[0]) for sample in PROCEDURES]
    assert len(set(digests)) == len(digests)


def program(
    name="f",
    size=3,
    factor=2.0,
    dtype=float,
    same_memory=False,
    zero=False,
    message="bad",
    other=False,
    parallel=False,
    which=0,
):
    build = ProcedureBuilder(name)
    x = build.array(f"{name}_x", (size,), dtype)
    a = build.allocate(f"{name}_a", size, dtype, zero=zero)
    b = build.allocate("b", size, dtype, memory=a.memory if same_memory else None)
    build.check(build.load(x, 0) < 1, "ValueError", message)
    with build.loop(size, parallel=parallel) as i, build.branch(build.load(x, i) < 1) as branch:
        if other:
            build.start_otherwise(branch)
        build.store((a, b)[which], i, factor * build.load(x, i))
    return procedure_digest(build.finish([a], [build.types[0]]))


def test_names_do_not_count():
    assert program("f") == program("g")


def test_everything_else_counts():
    digests = [
        program(),
        program(size=4),
        program(factor=3.0),
        program(dtype="f4"),
        program(same_memory=True),
        program(zero=True),
        program(message="worse"),
        program(other=True),
        program(parallel=True),
        program(which=1),
    ]
    assert all(one != two for one, two in itertools.combinations(digests, 2))
