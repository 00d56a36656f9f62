"""The namespace of the array API standard, and DLPack without copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradtape as gt
import gradtape.array_api as xp
from tests.support.processes import words_printed


def address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def standardised(x: Any) -> Any:
    """A program that knows the standard only: distances between standardised rows, in descending order."""
    ns = x.__array_namespace__(api_version="2024.12")
    scaled = (x - ns.mean(x, axis=0)) / ns.std(x, axis=0)
    gaps = ns.linalg.vector_norm(scaled[:, None, :] - scaled[None, :, :] + ns.eye(4)[:, :, None], axis=-1)
    return ns.sum(ns.sort(ns.reshape(gaps, (-1,)), descending=True)[:5])


def test_a_program_of_the_standard_runs_traced_and_differentiated() -> None:
    x = np.random.default_rng(0).normal(size=(4, 2))
    value, slope = gt.value_and_grad(standardised)(x)
    np.testing.assert_allclose(gt.jit(standardised)(x), value)
    step = 1e-6
    for place in np.ndindex(*x.shape):
        up, down = x.copy(), x.copy()
        up[place] += step
        down[place] -= step
        difference = float(standardised(xp.asarray(up))) - float(standardised(xp.asarray(down)))
        np.testing.assert_allclose(slope[place], difference / (2 * step), rtol=1e-5, atol=1e-7)


def test_an_array_knows_its_namespace() -> None:
    x = xp.ones(2)
    assert x.__array_namespace__() is xp is gt.array_api
    with pytest.raises(gt.errors.ArgumentError, match="1999"):
        x.__array_namespace__(api_version="1999.12")


def test_other_names_are_those_of_numpy() -> None:
    assert xp.cumsum is np.cumsum and xp.lib is np.lib
    assert (
        xp.zeros_like(xp.ones(2), shape=(3, 1)).shape
        == xp.full_like(xp.ones(2), 4, shape=(3, 1)).shape
        == (3, 1)
    )
    for name in ("nothing", "__nothing__"):
        with pytest.raises(AttributeError, match=name):
            getattr(xp, name)


def test_the_version_with_tuples() -> None:
    ns = xp.ones(2).__array_namespace__(api_version="2025.12")
    assert ns.__array_api_version__ == "2025.12" and ns.sum is xp.sum and ns.linalg is xp.linalg
    assert ns.__array_namespace_info__().devices() == ("cpu",)
    for made in (ns.meshgrid(xp.ones(2), xp.ones(3)), ns.broadcast_arrays(xp.ones(2), xp.ones((3, 1)))):
        assert type(made) is tuple and [part.shape for part in made] == [(3, 2)] * 2
    assert ns.broadcast_shapes((2,), (3, 1)) == (3, 2)
    assert ns.isin(3, xp.asarray([1, 3])) and ns.isin(xp.asarray([1, 2]), 2, invert=True).tolist() == [
        True,
        False,
    ]
    turn = xp.asarray([[0.0, -1.0], [1.0, 0.0]])
    assert {complex(found) for found in ns.linalg.eigvals(turn)} == {1j, -1j}
    assert ns.linalg.eig(xp.eye(2, dtype=xp.float32)).eigenvalues.dtype == xp.complex64


@pytest.mark.parametrize(
    "made",
    [
        xp.asarray([1, 2], dtype=xp.float64),
        xp.zeros(2),
        xp.ones((2, 1), dtype=xp.float32),
        xp.empty_like(xp.arange(3)),
        xp.full(2, 7),
        xp.linspace(0.0, 1.0, 5),
        xp.eye(2, 3, k=1),
        xp.nonzero(xp.asarray([0, 1]))[0],
        xp.unique_all(xp.asarray([2, 1, 2])).inverse_indices,
        xp.fft.fftfreq(4, dtype=xp.float32),
    ],
)
def test_created_arrays_are_of_gradtape(made: Any) -> None:
    assert type(made) is gt.Array


def test_a_dtype_of_asarray_is_a_cast() -> None:
    assert xp.asarray([[1, 0]], dtype=xp.float64).dtype == np.float64
    assert xp.asarray(xp.asarray([1, 0]), dtype=xp.float64).dtype == np.float64
    assert gt.asarray(gt.constant([1, 0]), dtype=float).dtype == np.float64


def test_limits() -> None:
    assert type(xp.finfo(xp.float32).eps) is float and xp.finfo(xp.ones(1)).bits == 64
    assert xp.iinfo(xp.asarray([1], dtype=xp.int8)).max == 127


def test_descending_order_is_stable() -> None:
    x = xp.asarray([2.0, 3.0, 2.0, 3.0])
    assert xp.argsort(x, descending=True).tolist() == [1, 3, 0, 2]


def test_numpy_gets_the_memory_read_only() -> None:
    x = xp.asarray([1.0, 2.0]) * 2
    seen = np.from_dlpack(x)
    assert address(seen) == address(np.from_dlpack(x)) and not seen.flags.writeable
    assert address(np.from_dlpack(x, copy=True)) != address(seen)


def test_the_memory_of_numpy_is_taken() -> None:
    y = np.arange(3.0)
    x = xp.from_dlpack(y)
    assert address(np.from_dlpack(x)) == address(y)
    np.testing.assert_array_equal(gt.grad(lambda x: xp.sum(x * x))(x), 2 * y)
    assert address(np.from_dlpack(xp.from_dlpack(y, copy=True))) != address(y)
    with pytest.raises(gt.errors.ArgumentError, match="C order"):
        xp.from_dlpack(y[::2], copy=False)


def test_jax_shares_memory() -> None:
    import jax.numpy as jnp

    j = jnp.arange(64.0)
    x = xp.from_dlpack(j)
    assert address(np.from_dlpack(x)) == j.unsafe_buffer_pointer()
    np.testing.assert_array_equal(np.from_dlpack(x), np.arange(64.0))
    with pytest.raises(gt.errors.DtypeError, match="bfloat16"):
        xp.from_dlpack(jnp.ones(2, jnp.bfloat16))


def test_memory_in_reversed_order_goes_out_as_a_copy() -> None:
    """PyTorch ends the process for negative strides."""
    x = xp.asarray([[1.0, 2.0], [3.0, 4.0]])[::-1]
    assert np.from_dlpack(x).tolist() == [[3.0, 4.0], [1.0, 2.0]] and np.from_dlpack(x).strides == (16, 8)
    with pytest.raises(BufferError, match="reversed order"):
        x.__dlpack__(copy=False)


def test_what_may_be_shared_without_saying_that_it_is_read_only() -> None:
    """Libraries before DLPack 1.0 cannot be told so."""
    assert xp.ones(3).__dlpack__(copy=False) is not None
    bytes_of_another = np.frombuffer(b"12345678", np.int8)
    assert xp.from_dlpack(bytes_of_another).__dlpack__() is not None
    with pytest.raises(BufferError, match="read-only"):
        xp.from_dlpack(bytes_of_another).__dlpack__(copy=False)
    assert np.from_dlpack(xp.from_dlpack(bytes_of_another), copy=False).tolist() == list(b"12345678")


def test_dlpack_of_a_traced_array_is_an_error() -> None:
    with pytest.raises(gt.errors.ConcretizationError, match="dlpack"):
        gt.jit(lambda x: x.__dlpack__())(np.ones(2))


def test_another_device_is_an_error() -> None:
    with pytest.raises(gt.errors.ArgumentError, match="cuda"):
        xp.zeros(2, device="cuda")


def test_torch_shares_memory() -> None:
    torch = pytest.importorskip("torch", reason="wheels of PyTorch have gigabytes of CUDA: run by hand")
    t = torch.arange(4.0, dtype=torch.float64)
    assert address(np.from_dlpack(xp.from_dlpack(t))) == t.data_ptr()
    np.testing.assert_array_equal(torch.from_dlpack(xp.ones(3) * 2).numpy(), np.full(3, 2.0))


WITH_SWITCH = """
import os
os.environ["SCIPY_ARRAY_API"] = "1"
import numpy as np, gradtape as gt, scipy.signal, scipy.special, scipy.stats
x = np.random.default_rng(0).normal(size=6) + 2
programs = {
    "zscore": lambda x: (scipy.stats.zscore(x) ** 3).sum(),
    "gmean": lambda x: scipy.stats.gmean(abs(x)),
    "skew": lambda x: scipy.stats.skew(x),
    "logsumexp": lambda x: scipy.special.logsumexp(x),
    "softmax": lambda x: (scipy.special.softmax(x) ** 2).sum(),
    "detrend": lambda x: (scipy.signal.detrend(x) ** 2).sum(),
    "gammaln": lambda x: scipy.special.gammaln(x).sum(),
    "betainc": lambda x: scipy.special.betainc(x, 2.0, 0.3).sum(),
}
for name, program in programs.items():
    value, slope = gt.value_and_grad(program)(x)
    differences = [(program(x + 1e-6 * e) - program(x - 1e-6 * e)) / 2e-6 for e in np.eye(6)]
    np.testing.assert_allclose([value, gt.jit(program)(x)], program(x))
    np.testing.assert_allclose(slope, differences, rtol=1e-4, atol=1e-6)
    print(name)
"""


def test_scipy_with_its_array_api_switch_is_differentiated() -> None:
    names = ["zscore", "gmean", "skew", "logsumexp", "softmax", "detrend", "gammaln", "betainc"]
    assert words_printed(WITH_SWITCH) == names


def test_numbers_become_arrays_whose_element_can_be_set() -> None:
    def root(x: Any) -> Any:
        xp = x.__array_namespace__()
        made = xp.asarray(xp.sum(x) + 0)
        made[made < 0] = 0
        other = xp.asarray(2.0)
        other[()] = made
        return xp.sqrt(made) + other

    x = np.array([1.5, 2.5])
    with gt.GradientTape() as tape:
        watched = tape.watch(x)
        y = root(watched)
    assert y == 6.0
    np.testing.assert_allclose(tape.gradient(y, watched), [1.25, 1.25])
    np.testing.assert_allclose(gt.grad(root)(x), [1.25, 1.25])
