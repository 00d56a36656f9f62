"""What NumPy refuses is refused, by an error of the same class.

More of it: ``python -m tests.fuzz.memory.refusals --programs 10000``.
"""

from __future__ import annotations

import pytest

from tests.fuzz.memory.refusals import failures, generate

BLOCK = 50


@pytest.mark.parametrize("first", range(0, 300, BLOCK))
def test_random_statements(first):
    found = []
    for seed in range(first, first + BLOCK):
        text, names = generate(seed)
        found += [f"{text}{failure}" for failure in failures(text, names)]
    assert not found, "\n".join(found)


STATEMENTS = {
    "y[0][...] = 0.35": "v[0][...] = 0.35",
    "for r in y": "for s in v: s[...] = 0.5",
    "a sum": "s = np.sum(v); s[...] = 1.0",
    "a sequence": "v[0] = [0.1, 0.1]",
    "a row": "v[0] = m[0]",
    "one element": "v[0] = m[0, :1]",
    "one element of two axes": "v[0] = m[:1, :1]",
    "an imaginary part": "np.imag(v).fill(1.0)",
    "an imaginary part as target": "np.sin(v, out=np.imag(v))",
    "an imaginary part's item": "v.imag[0] = 1.0",
    "a complex number": "v[0] = 1j",
    "a complex number in a row": "m[np.array(1)] = 1j",
    "a complex number in several places": "m[[0, 1], [0, 1]] = 1j",
    "a complex number in a mask": "v[v > 1] = 1j",
    "a complex array in a mask": "v[v > 1] = np.full(3, 1j)[0]",
    "NaN": "k[0] = np.nan",
    "rounding in place": "k /= 2",
    "deletion": "del v[0]",
    "a shape": "np.cumsum(m, out=m)",
    "stacks": "np.stack((m, m[:2]))",
    "a decomposition": "v[:3] = np.linalg.cholesky(q)[0]",
    "a small integer": "np.bitwise_count(k) & -2",
    "an index of which no element is read": "v[0] = len(k[[0, 7]])",
    "an index of which another element is read": "v[0] = k[[0, 7]][0]",
    "an index after an ellipsis": "v[0] = m[..., [[0], [9]]][0, 0, 0]",
    "a complex number in an imaginary part": "v.imag[...] = 1j",
    "a shape in an imaginary part": "v.imag[:1][...] = [1.0, 2.0]",
    "a list in a truth value": "b = v > 1; b[0] = [0.0]; b[1] = range(0); v *= b",
    "an array in a truth value": "b = v > 1; b[0] = v[:1]; b[3] = v[:1, None] - 0.5; v *= b",
    "two elements in a truth value": "b = v > 1; b[0] = v[:2]",
    "a list that fills truth values": "b = v > 1; b.fill([0.0]); v *= b",
    "an array that fills truth values": "b = v > 1; b.fill(v[:1]); v *= b",
    "a list in a view of rank 0": "v[0, ...] = [0.1]",
    "a list of a list in a view of rank 0": "m[0, 0, ...] = [[0.1]]",
    "a list in a view of a truth value": "b = v > 1; b[..., 0] = [0.1]",
    "one element in a view of rank 0": "v[..., 0] = v[:1]",
    "one element of two axes in a view of rank 0": "m[0, ..., 0] = m[:1, 1:2]; v[0] = m[0, 0]",
    "two elements in a view of rank 0": "v[..., 0] = v[:2]",
    "a list that is added to a view of rank 0": "v[0, ...] += [0.1]",
    "a shape, and nothing to write to": "v[False] = m",
    "numbers, and nothing to write to": "v[False] = v",
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", STATEMENTS)
def test_what_was_found_before(name, compiled):
    text = f"def f(v, m, k, q):\n    {STATEMENTS[name]}\n    return v\n"
    found = list(failures(text, ("v", "m", "k", "q"), compiled=compiled))
    assert not found, text + "\n".join(found)


def test_an_index_array_of_rank_0_selects_a_copy():
    text = "def f(v, m):\n    y = m[np.array(1)]\n    y[0] = 9.0\n    w = v[np.array(1), ...]\n    w[...] = 7.0\n    return m * v\n"
    assert not list(failures(text, ("v", "m")))


def test_ranges_are_operands():
    text = "def f(v):\n    return np.add(v, range(4)) * range(4) + np.dot(range(4), v)\n"
    assert not list(failures(text, ("v",)))
