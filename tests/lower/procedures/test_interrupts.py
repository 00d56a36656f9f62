"""Ctrl-C in the loops of procedures."""

import pytest

from tests.support.processes import words_printed

PROGRAM = """
import os, signal, threading, time
import numpy as np
from tests.lower.procedures.standalone import compile_procedure
from gradtape.procedures.builder import ProcedureBuilder

signal.signal(signal.SIGINT, signal.default_int_handler)

def innermost(build, n, total):
    with build.loop(n):
        build.assign(total, build.read(total) * 0.5 + 1.0)

def outer(build, n, total):
    with build.loop(n), build.loop(3):
        build.assign(total, build.read(total) * 0.5 + 1.0)

def endless(build, n, total):
    k = build.variable("k", 0)
    with build.loop_while() as loop:
        build.start_body(loop, build.read(k) < n)
        build.assign(k, build.read(k) + 1)
        build.assign(total, build.read(total) * 0.5 + 1.0)

def interrupted(write):
    build = ProcedureBuilder("long")
    n = build.scalar("n", np.int64)
    total = build.variable("total", 0.0)
    work = build.allocate("work", n - n + 10)
    build.store(work, 0, 0.0)
    write(build, n, total)
    run = compile_procedure(build.finish([build.read(total) + build.load(work, 0)]))
    def fire():
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)
    for _ in range(2):
        threading.Thread(target=fire).start()
        try:
            run(10**12)
        except KeyboardInterrupt:
            print("interrupted", round(float(run(100_001)[0]), 9))
"""


@pytest.mark.parametrize("loop", ["innermost", "outer", "endless"])
def test_ctrl_c_ends_a_procedure_that_can_then_be_run_again(loop):
    assert words_printed(f"{PROGRAM}\ninterrupted({loop})") == ["interrupted", "2.0"] * 2
