"""Equal programs have equal code in every process: it depends neither on the hashes of names nor on the addresses of objects."""

from __future__ import annotations

from tests.support.processes import run_python

SALTED = """
import builtins, sys

salt = int(sys.argv[1])
make = builtins.__build_class__


def salted(body, name, *bases, **options):
    cls = make(body, name, *bases, **options)
    if name in ("Value", "Node", "Variable", "Memory", "Pointer", "BasicBlock") and cls.__hash__ is object.__hash__:
        cls.__hash__ = lambda self: hash((salt, id(self)))
    return cls


builtins.__build_class__ = salted
import gradtape as gt

builtins.__build_class__ = make
"""
"""Imports gradtape with other hashes of what its sets are made of: a process may find objects at the same addresses again."""

PROGRAMS = """
import hashlib
import numpy as np
from tests.programs.loops import all
from tests.programs.loops.cases import PROGRAMS

LOOPS = "nbody", "matrix_exponential", "pendulum", "k_means", "newton", "convolution"


def mixture(x, means, scales):
    logs = -0.5 * ((x[:, None] - means) / scales) ** 2 - np.log(scales)
    most = np.max(logs, axis=1)
    return np.sum(most + np.log(np.sum(np.exp(logs - most[:, None]), axis=1)))


def cell(w, x):
    h = c = np.zeros(4)
    for t in range(x.shape[0]):
        i, f, o, g = np.split(w @ np.concatenate((x[t], h)), 4)
        c = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
        h = np.tanh(c) / (1 + np.exp(-o))
    return np.sum(h)


def forward(start, move, emit):
    a = start
    for t in range(8):
        a = (a @ move) * emit[:, t % 3]
        a = a / np.sum(a)
    return np.sum(a * emit[:, 0])


def halved(x):
    while np.sum(x) > 0.1:
        x = np.where(x > 0.2, 0.5 * x, x * x)
    return np.sum(x)


def scanned(x):
    return np.sum(gt.scan(lambda c, y: (np.tanh(c + y), c * y), x[0], x)[1])


random = np.random.default_rng(0)
cases = [
    (mixture, random.random(9), random.random(3), 1 + random.random(3)),
    (cell, random.random((16, 7)), random.random((5, 3))),
    (forward, np.full(3, 1 / 3), random.random((3, 3)), random.random((3, 3))),
    (halved, random.random(5)),
    (scanned, random.random(6)),
]
for function, *args in cases:
    digest = hashlib.sha256(str(gt.inspect.asm(gt.grad(function), *args)).encode()).hexdigest()
    print(function.__name__, digest)
gt.config.loops = "compile"
for name in LOOPS:
    case = PROGRAMS[name]
    active = case.active if len(case.active) > 1 else case.active[0]
    text = str(gt.inspect.asm(gt.grad(case.function, active), *case.arguments()))
    print(name, hashlib.sha256(text.encode()).hexdigest())
"""


def test_processes_with_other_hashes_make_the_same_code() -> None:
    codes = []
    for salt in ("1", "3"):
        done = run_python(SALTED + PROGRAMS, salt, PYTHONHASHSEED=salt, GRADTAPE_DISK_CACHE="0")
        assert done.returncode == 0, done.stderr
        codes.append(dict(line.split() for line in done.stdout.splitlines()))
    assert len(codes[0]) == 11
    assert codes[0] == codes[1]
