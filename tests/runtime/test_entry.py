"""The native entry: what it takes, what it hands to the fallback, and what it leaves behind."""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradtape.lower.resident.memory import kept_bytes
from gradtape.runtime.call import entry
from gradtape.runtime.call.callable import FastCallable
from gradtape.runtime.call.capi import supports_dtype
from gradtape.runtime.call.convention import ArraySpec, ScalarSpec, Signature, StaticSpec, Structure
from gradtape.runtime.call.entry import bind, kept_workspaces, load, trim
from gradtape.runtime.call.entry_ir import add_entry
from gradtape.runtime.compile.engine import compile_object
from tests.support.kernels import (
    COPY_BYTES,
    NUMBER,
    REFUSES,
    SUM,
    TWICE,
    VALUE_AND_GRADIENT,
    VECTOR,
    native,
    told,
)

X = np.array([1.0, 2.0, 3.0])
GRADIENT = Signature((VECTOR,), (NUMBER, VECTOR), (0, 1))
DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", "c8", "c16"]


def copying(dtype: str, shape: tuple[int, ...], argument: ArraySpec | ScalarSpec | None = None) -> Any:
    """A native function that returns a copy of its argument."""
    spec = ArraySpec(dtype, shape)
    return native(COPY_BYTES.format(count=spec.nbytes), Signature((argument or spec,), (spec,), 0))


@pytest.fixture(scope="module")
def gradient() -> Any:
    return native(VALUE_AND_GRADIENT, GRADIENT)


def test_a_call_returns_a_numpy_scalar_and_a_fresh_array(gradient: Any) -> None:
    value, slope = gradient(X)
    assert type(value) is np.float64
    assert value == 14.0
    assert type(slope) is np.ndarray
    np.testing.assert_array_equal(slope, [2.0, 4.0, 6.0])
    assert slope.flags.c_contiguous and slope.flags.owndata and slope.flags.writeable
    assert gradient(X)[1] is not slope


def strided() -> np.ndarray[Any, Any]:
    return np.arange(6.0)[::2]


class Subclass(np.ndarray[Any, Any]):
    pass


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (X, X),
        ([1.0, 2.0, 3.0],),
        (None,),
        (2.5,),
        (X.astype(np.float32),),
        (X.astype(">f8"),),
        (X.astype(np.int64),),
        (np.arange(4.0),),
        (X[None, :],),
        (np.float64(1.0),),
        (strided(),),
        (X[::-1],),
        (np.frombuffer(b"\0" * 25, np.uint8)[1:].view(np.float64),),
        (X.view(Subclass),),
        (np.ma.masked_array(X),),
    ],
    ids=lambda arguments: f"{len(arguments)}" if len(arguments) != 1 else str(type(arguments[0]).__name__),
)
def test_other_arguments_go_to_the_fallback_as_they_are(gradient: Any, arguments: tuple[Any, ...]) -> None:
    kind, seen, keywords = gradient(*arguments)
    assert kind == "fallback"
    assert len(seen) == len(arguments)
    assert all(one is other for one, other in zip(seen, arguments, strict=True))
    assert keywords == {}


def test_keyword_arguments_go_to_the_fallback(gradient: Any) -> None:
    assert gradient(x=X) == ("fallback", (), {"x": X})
    kind, seen, keywords = gradient(X, verbose=True)
    assert (kind, keywords) == ("fallback", {"verbose": True})
    assert seen[0] is X


def test_every_way_of_calling_arrives(gradient: Any) -> None:
    assert (
        gradient(*[X])[0] == gradient(*(X,), **dict[str, Any]())[0] == [*map(gradient, (X, X))][1][0] == 14.0
    )


def test_what_the_fallback_raises_reaches_the_caller() -> None:
    def fails(*_: Any) -> None:
        raise LookupError("from the fallback")

    function = native(TWICE, Signature((VECTOR,), (VECTOR,), 0), fails)
    with pytest.raises(LookupError, match="from the fallback"):
        function("no array")
    np.testing.assert_array_equal(function(X), 2 * X)


def test_a_refusing_kernel_sends_the_call_to_the_fallback() -> None:
    function = native(
        REFUSES, Signature((VECTOR,), (NUMBER, VECTOR), (0, 1), workspace=100_000, release_gil=True)
    )
    assert function(X)[0] == "fallback"
    assert function(X)[1][0] is X


@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_dtypes_that_are_other_objects_pass(dtype: str) -> None:
    x = np.arange(3).astype(dtype)
    other = pickle.loads(pickle.dumps(x))
    assert other.dtype is not x.dtype or dtype in ("?", "i1", "u1")
    result = copying(dtype, (3,))(other)
    np.testing.assert_array_equal(result, x)
    assert result.dtype is x.dtype


def test_arrays_of_pointers_and_memory_views_pass(gradient: Any) -> None:
    numbers = (ctypes.c_double * 3)(*X)
    pointer = ctypes.cast(numbers, ctypes.POINTER(ctypes.c_double))
    for other in (np.ctypeslib.as_array(pointer, (3,)), np.asarray(memoryview(numbers))):
        assert gradient(other)[0] == 14.0


def test_other_units_and_byte_orders_do_not_pass(gradient: Any) -> None:
    for other in (X.astype(">f8"), X.view(np.int64).view("m8[s]"), X.view("V8")):
        assert gradient(other)[0] == "fallback"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (4,), (2, 3), (1, 1, 2)])
def test_every_number_dtype_passes(dtype: str, shape: tuple[int, ...]) -> None:
    function = copying(dtype, shape)
    x = (np.arange(np.prod(shape, dtype=int)) % 2 + 1).reshape(shape).astype(dtype)
    if shape == ():
        x = np.ones((), dtype)
    result = function(x)
    assert result.dtype == x.dtype
    assert np.shape(result) == shape
    np.testing.assert_array_equal(result, x)
    if shape == ():
        assert type(result) is x.dtype.type
        accepted = function(x[()])
        if dtype != "?":
            assert accepted == x


def test_dtypes_that_cannot_pass_are_named() -> None:
    assert not supports_dtype(np.dtype("M8[s]"))
    signature = Signature((ArraySpec("O", (3,)),), (), None)
    with pytest.raises(TypeError, match="object"):
        load(compile_object(add_entry(TWICE, signature), "objects"), signature)


@pytest.mark.parametrize(
    ("kind", "dtype", "good", "bad"),
    [
        ("float", "f8", [1.5, -0.0, float("inf")], [1, True, np.float64(1.0), "1", None]),
        ("int", "i8", [0, -5, 2**63 - 1, -(2**63)], [2**63, -(2**63) - 1, 1.0, True, np.int64(3)]),
        ("bool", "?", [True, False], [1, 0, np.True_, None]),
        ("complex", "c16", [1 + 2j, -1j], [1.0, np.complex128(1)]),
    ],
)
def test_python_numbers_of_exactly_one_type(kind: Any, dtype: str, good: list[Any], bad: list[Any]) -> None:
    function = copying(dtype, (), ScalarSpec(kind))
    for number in good:
        assert function(number) == number
    for number in bad:
        assert function(number)[0] == "fallback"


def test_static_arguments_are_compared_by_identity() -> None:
    mode, other = object(), object()
    signature = Signature((StaticSpec(), VECTOR, StaticSpec()), (VECTOR,), 0)
    function = native(TWICE, signature, statics=(mode, None))
    np.testing.assert_array_equal(function(mode, X, None), 2 * X)
    assert function(other, X, None)[0] == "fallback"
    assert function(mode, X, False)[0] == "fallback"


def test_captured_arrays_come_after_the_arguments_and_stay_alive() -> None:
    signature = Signature((VECTOR,), (VECTOR,), 0, constants=1)
    loaded = load(compile_object(add_entry(SUM, signature), "sum"), signature)
    first = bind(loaded, signature, told, [np.array([10.0, 20.0, 30.0])])
    second = bind(loaded, signature, told, [np.zeros(3)])
    del loaded
    gc.collect()
    np.testing.assert_array_equal(first(X), [11.0, 22.0, 33.0])
    np.testing.assert_array_equal(second(X), X)


def test_a_result_that_is_returned_twice_lives_as_long_as_either() -> None:
    function = native(TWICE, Signature((VECTOR,), (VECTOR,), (0, (0, 0))))
    first, (second, third) = function(X)
    assert first is second is third
    alive = weakref.ref(first)
    del first, second
    assert alive() is not None
    del third
    assert alive() is None


def test_bindings_that_do_not_fit_the_signature_are_refused() -> None:
    signature = Signature((VECTOR,), (VECTOR,), 0, constants=1)
    loaded = load(compile_object(add_entry(SUM, signature), "sum"), signature)
    with pytest.raises(ValueError, match="1 constants"):
        bind(loaded, signature, told)
    with pytest.raises(ValueError, match="contiguous"):
        bind(loaded, signature, told, [np.arange(6.0)[::2]])


@pytest.mark.parametrize(
    "structure",
    [
        None,
        0,
        1,
        (),
        (0,),
        (1, 0),
        [0, 1],
        ((0, 1), [1, (0, None)], [], ()),
        (0, 0, 0),
        [None, (None,)],
    ],
    ids=str,
)
def test_results_are_handed_back_in_their_structure(structure: Structure) -> None:
    function = native(VALUE_AND_GRADIENT, Signature((VECTOR,), (NUMBER, VECTOR), structure))

    def compare(node: Structure, result: Any) -> None:
        match node:
            case None:
                assert result is None
            case int():
                np.testing.assert_array_equal(result, (14.0, 2 * X)[node])
            case _:
                assert type(result) is type(node)
                assert len(result) == len(node)
                for child, part in zip(node, result, strict=True):
                    compare(child, part)

    compare(structure, function(X))
    if structure == (0, 0, 0):
        assert function(X)[0] is not None


def reference_counts(*things: object) -> list[int]:
    return [sys.getrefcount(thing) for thing in things]


@pytest.mark.parametrize("structure", [None, 1, (0, 1), ((0, 1), [1, (0, None)], []), (0, 0)], ids=str)
def test_references_balance(structure: Structure) -> None:
    function = native(VALUE_AND_GRADIENT, Signature((VECTOR,), (NUMBER, VECTOR), structure, workspace=5000))
    things = (X, function, np.dtype("f8"), np.float64, np.ndarray, told, None)
    function(X), function(3), function(X, k=1)
    gc.collect()
    before, blocks = reference_counts(*things), sys.getallocatedblocks()
    for _ in range(20_000):
        function(X)
        function(3)
        function(X, k=1)
    gc.collect()
    after = reference_counts(*things)
    assert all(abs(one - other) < 50 for one, other in zip(before, after, strict=True))
    assert sys.getallocatedblocks() - blocks < 500


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_million_calls_leave_nothing(gradient: Any) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text("ascii").split()[1])

    for _ in range(1000):
        gradient(X)
    before = resident()
    for _ in range(1_000_000):
        gradient(X)
    assert resident() - before < 500


def test_when_memory_runs_out_an_exception_is_raised_and_nothing_is_lost() -> None:
    too_large = ArraySpec("float64", (2**44,))
    function = native(VALUE_AND_GRADIENT, Signature((VECTOR,), (NUMBER, VECTOR, too_large), (0, 1, 2)))
    before = reference_counts(np.dtype("f8"), X)
    for _ in range(200):
        with pytest.raises(MemoryError):
            function(X)
    gc.collect()
    after = reference_counts(np.dtype("f8"), X)
    assert all(abs(one - other) < 20 for one, other in zip(before, after, strict=True))
    scratch = native(TWICE, Signature((VECTOR,), (VECTOR,), 0, workspace=2**50))
    with pytest.raises(MemoryError):
        scratch(X)


# The workspace

STAMPS = """
define i32 @kernel(ptr %inputs, ptr %outputs, ptr %workspace) {
  %to = load ptr, ptr %outputs
  %address = ptrtoint ptr %workspace to i64
  store i64 %address, ptr %to
  %last = getelementptr i8, ptr %workspace, i64 SIZE
  store i8 1, ptr %last
  ret i32 0
}
"""
ADDRESS = ArraySpec("int64", ())


def stamping(size: int) -> Any:
    return native(STAMPS.replace("SIZE", str(size - 1)), Signature((), (ADDRESS,), 0, workspace=size))


@pytest.mark.parametrize("size", [1, 8, 2048, 2049, 100_000, 1_000_000])
def test_workspaces_are_aligned(size: int) -> None:
    assert stamping(size)() % 64 == 0


def test_the_workspace_stays_until_it_is_trimmed() -> None:
    trim()
    function = stamping(100_000)
    first = function()
    assert function() == first
    assert kept_workspaces() == 100_000
    trim()
    assert kept_workspaces() == 0
    function()
    assert kept_workspaces() == 100_000
    del function
    gc.collect()
    assert kept_workspaces() == 0


def test_large_workspaces_are_those_of_the_pool() -> None:
    trim()
    function, other = stamping(1_000_000), stamping(1_000_000)
    page = function() // 4096
    kept = kept_bytes()
    assert other() // 4096 == page and kept == kept_bytes() >= 1_000_000
    assert kept_workspaces() == 0
    del function, other
    gc.collect()
    assert kept_bytes() == 0


# Threads

SLOW = """
declare i32 @usleep(i32)
define i32 @kernel(ptr %inputs, ptr %outputs, ptr %workspace) {
  %from = load ptr, ptr %inputs
  %to = load ptr, ptr %outputs
  %x = load i64, ptr %from
  store i64 %x, ptr %workspace
  %slept = call i32 @usleep(i32 2000)
  %kept = load i64, ptr %workspace
  store i64 %kept, ptr %to
  ret i32 0
}
"""


def slow(fallback: Callable[..., Any] = told) -> Any:
    return native(
        SLOW, Signature((ScalarSpec("int"),), (ADDRESS,), 0, workspace=4096, release_gil=True), fallback
    )


def in_threads(work: Callable[[int], None], count: int) -> None:
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.skipif(os.name != "posix", reason="calls usleep")
def test_concurrent_calls_have_workspaces_of_their_own() -> None:
    function = slow()

    def work(number: int) -> None:
        for repeat in range(20):
            assert function(100 * number + repeat) == 100 * number + repeat

    in_threads(work, 6)
    assert kept_workspaces() >= 4096


@pytest.mark.skipif(os.name != "posix", reason="calls usleep")
def test_other_threads_run_during_a_kernel_that_releases_the_lock() -> None:
    function, inside, seen = slow(), threading.Event(), []

    def work(number: int) -> None:
        if number == 0:
            inside.set()
            for _ in range(50):
                function(1)
            inside.clear()
        else:
            inside.wait(10)
            while inside.is_set():
                seen.append(1)

    in_threads(work, 2)
    assert seen


@pytest.mark.skipif(os.name != "posix", reason="calls usleep")
def test_machine_code_outlives_the_calls_that_are_under_way() -> None:
    fast = FastCallable(told)
    stop = threading.Event()

    def work(number: int) -> None:
        if number == 0:
            for _ in range(40):
                fast.install(slow())
                fast(1)
            stop.set()
        else:
            while not stop.is_set():
                result = fast(number)
                assert result == number or result[0] == "fallback"

    in_threads(work, 3)
    fast.uninstall()
    slow()
    assert all(resources.words[entry.ACTIVE_WORD] for resources in entry._active_when_freed)
