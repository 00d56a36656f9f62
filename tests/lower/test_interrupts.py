"""Ctrl-C in loops of kernels: a handler's exception ends them, and they can be run again."""

import math

import pytest

from tests.support.processes import words_printed

PROGRAM = """
import os, signal, threading, time
import numpy as np
import gradtape as gt

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started the tests with SIGINT ignored

def endless(x):
    return gt.while_loop(lambda a, n: a > -1.0, lambda a, n: (a * 0.5 + 1.0, n + 1), (x, 0), max_iterations=10**12)[0]

def finite(x, n):
    return gt.while_loop(lambda a, k: k < n, lambda a, k: (a * 0.5 + 1.0, k + 1), (x, 0))[0]

def product(x):
    return np.sin(x @ x)

def slow(x):  # most of the time passes between the calls of Python, in products that do not poll
    def body(a, n):
        a = product(product(a))
        return a + gt.callback(np.fft.fft, a[0], a[0]).real, n + 1
    return gt.while_loop(lambda a, n: a[0, 0] > -np.inf, body, (x, 0), max_iterations=10**12)[0]

compiled, short = gt.jit(endless), gt.jit(finite)

def interrupted(call, number=signal.SIGINT):
    def fire():
        time.sleep(0.3)
        os.kill(os.getpid(), number)
    threading.Thread(target=fire).start()
    begin = time.perf_counter()
    try:
        call()
    except BaseException as error:
        assert time.perf_counter() - begin < 60.0
        return type(error).__name__
"""

WAYS = {
    "jit": "compiled(1.0)",
    "native entry": "compiled(np.float64(1.0))",
    "plain": "endless(1.0)",
    "nested": "gt.jit(lambda x: compiled(x) * 2.0)(1.0)",
    "gradient": "gt.grad(endless)(1.0)",
    "callback": "gt.jit(slow)(np.ones((300, 300)))",
    "scan": "gt.jit(lambda x: gt.scan(lambda s, _: (np.sin(s), None), x, None, length=10**11)[0])(1.0)",
}


@pytest.mark.parametrize("way", WAYS)
def test_ctrl_c_ends_a_loop_that_can_then_be_run_again(way):
    body = f"""
for _ in range(2):
    print(interrupted(lambda: {WAYS[way]}))
print(float(short(1.0, 10)))
"""
    assert words_printed(PROGRAM + body) == ["KeyboardInterrupt", "KeyboardInterrupt", "1.9990234375"]


def test_the_exception_is_that_of_the_handler():
    body = """
class Enough(Exception):
    pass

def handle(number, frame):
    raise Enough

signal.signal(signal.SIGUSR1, handle)
print(interrupted(lambda: compiled(1.0), signal.SIGUSR1))
seen = []
signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
print(interrupted(lambda: compiled(1.0)), len(seen))
"""
    assert words_printed(PROGRAM + body) == ["Enough", "KeyboardInterrupt", "1"]


def test_on_a_tape():
    body = """
def taped():
    x = gt.Variable(1.0)
    with gt.GradientTape() as tape:
        print(float(endless(x)))
print(interrupted(taped), float(short(1.0, 10)))
"""
    assert words_printed(PROGRAM + body) == ["KeyboardInterrupt", "1.9990234375"]


def test_other_threads_run_meanwhile():
    body = """
count = 0
over = False
def work():
    global count
    while not over:
        count += 1
        time.sleep(0.001)
thread = threading.Thread(target=work)
thread.start()
print(interrupted(lambda: compiled(1.0)), count > 20)
over = True
thread.join()
"""
    assert words_printed(PROGRAM + body) == ["KeyboardInterrupt", "True"]


def test_ctrl_c_ends_a_loop_that_is_compiled_from_its_code():
    body = """
def loop(x, n):
    for k in range(n):
        x = math.sin(x) + 0.5
    return x

import math
import numba
compiled = gt.jit(numba.njit(loop))
for _ in range(2):
    print(interrupted(lambda: compiled(1.0, 10**11)))
print(round(float(compiled(1.0, 3)), 6))
"""
    expected = 1.0
    for _ in range(3):
        expected = math.sin(expected) + 0.5
    assert words_printed(PROGRAM + body) == [
        "KeyboardInterrupt",
        "KeyboardInterrupt",
        str(round(expected, 6)),
    ]


def test_an_exception_before_the_first_instruction_of_python_code_that_a_kernel_calls():
    body = """
import ctypes
from gradtape.lower.resident.callbacks import call_python_address
from gradtape.lower.resident.interrupts import INTERRUPTED, raise_interruption
from gradtape.lower.resident.routine import load_resident

text = '''
declare void @PyErr_SetInterrupt()
declare i32 @call(ptr, ptr)
define i32 @signalled(ptr %text, ptr %table) {
  call void @PyErr_SetInterrupt()
  %status = call i32 @call(ptr %text, ptr %table)
  ret i32 %status
}
'''
address = load_resident(text, "signalled", ["signalled"], {"call": call_python_address()})["signalled"]
signalled = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p, ctypes.c_void_p)(address)
print(signalled(b"", None) == INTERRUPTED)
try:
    raise_interruption()
except KeyboardInterrupt:
    print("raised")
"""
    assert words_printed(PROGRAM + body) == ["True", "raised"]


def test_other_exceptions_of_callbacks_pass_kernels():
    body = """
def leaves(x):
    raise SystemExit(3)

function = gt.jit(lambda x: np.sum(np.sin(gt.callback(leaves, x, np.cos(x)))))
try:
    function(np.ones(3))
except SystemExit as error:
    print(error.code)
"""
    assert words_printed(PROGRAM + body) == ["3"]
