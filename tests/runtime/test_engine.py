"""Compiling LLVM IR, loading object code, and giving the machine code's memory back."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from gradtape.lower.target import host
from gradtape.runtime.compile import engine
from gradtape.runtime.compile.engine import LoadedModule, assembly, call_flat, compile_object, optimised_llvm
from tests.support.kernels import SUM, TWICE, elementwise, straight_gathers
from tests.support.processes import run_python

X86 = host.cpu_features().count("sse2") > 0
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def resident_kilobytes() -> int:
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def test_a_kernel_computes() -> None:
    loaded = LoadedModule(compile_object(SUM, "sum"))
    result = np.empty(3)
    assert call_flat(loaded, [np.array([1.0, 2.0, 3.0]), np.array([10.0, 20.0, 30.0])], [result]) == 0
    np.testing.assert_array_equal(result, [11.0, 22.0, 33.0])


def test_the_kernels_status_is_returned_and_it_sees_the_workspace() -> None:
    text = """
    define i32 @guard(ptr %inputs, ptr %outputs, ptr %workspace) {
      store i64 41, ptr %workspace
      ret i32 -1
    }"""
    loaded = LoadedModule(compile_object(text, "guard"), "guard")
    workspace = np.zeros(8, np.int64)
    assert call_flat(loaded, [], [], workspace) == -1
    assert workspace[0] == 41


@pytest.mark.parametrize("name", ["exp", "tanh", "lgamma"])
def test_the_c_library_is_within_reach_of_loaded_code(name: str) -> None:
    kernel = elementwise(
        5, f"  %r = call double @{name}(double %x0)", declarations=f"declare double @{name}(double)"
    )
    x, y = np.linspace(0.5, 2.5, 5), np.empty(5)
    call_flat(LoadedModule(compile_object(kernel, name)), [x], [y])
    from scipy import special

    exact = {"exp": np.exp, "tanh": np.tanh, "lgamma": special.gammaln}[name](x)
    np.testing.assert_allclose(y, exact, rtol=1e-14, atol=1e-15)


def test_vector_functions_of_the_c_library_are_called() -> None:
    prefix, lanes = {64: ("_ZGVeN8v", 8), 32: ("_ZGVdN4v", 4), 16: ("_ZGVbN2v", 2)}[host.vector_bytes()]
    if not host.has_symbol(f"{prefix}_exp"):
        assert host.vector_functions(host.vector_bytes()) == ()
        return
    assert "exp" in host.vector_functions(host.vector_bytes())
    declarations = f"""
    declare double @exp(double) #0
    declare <{lanes} x double> @{prefix}_exp(<{lanes} x double>)
    @llvm.compiler.used = appending global [1 x ptr] [ptr @{prefix}_exp], section "llvm.metadata"
    attributes #0 = {{ nounwind willreturn memory(none) }}
    attributes #1 = {{ nounwind willreturn memory(none)
      "vector-function-abi-variant"="_ZGV_LLVM_N{lanes}v_exp({prefix}_exp)" }}
    """
    kernel = elementwise(100, "  %r = call double @exp(double %x0) #1", declarations=declarations)
    assert f"{prefix}_exp" in assembly(kernel)
    x, y = np.linspace(-5, 5, 100), np.empty(100)
    call_flat(LoadedModule(compile_object(kernel, "exp")), [x], [y])
    np.testing.assert_allclose(y, np.exp(x), rtol=1e-15)


def test_routines_of_scipy_are_reached_by_address() -> None:
    from scipy.linalg import cython_blas

    capsule = cython_blas.__pyx_capi__["ddot"]
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = pointer(capsule, name(capsule))
    text = """
    declare double @blas.ddot(ptr, ptr, ptr, ptr, ptr)
    define i32 @kernel(ptr %inputs, ptr %outputs, ptr %workspace) {
      %x = load ptr, ptr %inputs
      %s = getelementptr ptr, ptr %inputs, i64 1
      %y = load ptr, ptr %s
      %to = load ptr, ptr %outputs
      %n = alloca i32
      store i32 3, ptr %n
      %one = alloca i32
      store i32 1, ptr %one
      %r = call double @blas.ddot(ptr %n, ptr %x, ptr %one, ptr %y, ptr %one)
      store double %r, ptr %to
      ret i32 0
    }"""
    loaded = LoadedModule(compile_object(text, "dot"), imports={"blas.ddot": address})
    result = np.empty(())
    call_flat(loaded, [np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0])], [result])
    assert result == 32.0


def test_a_missing_symbol_is_an_error_and_leaves_the_loader_usable(capfd: pytest.CaptureFixture[str]) -> None:
    kernel = elementwise(
        3, "  %r = call double @nowhere(double %x0)", declarations="declare double @nowhere(double)"
    )
    with pytest.raises(RuntimeError, match="kernel"):
        LoadedModule(compile_object(kernel, "missing"))
    assert "nowhere" in capfd.readouterr().err
    assert LoadedModule(compile_object(TWICE, "twice")).address("kernel") != 0


def test_text_that_is_not_llvm_is_an_error_and_leaves_the_compiler_usable() -> None:
    with pytest.raises(RuntimeError, match="parsing"):
        compile_object("this is not LLVM", "nonsense")
    with pytest.raises(RuntimeError):
        compile_object(
            "define i32 @kernel() { %x = add i32 1, 2  %x = add i32 1, 2  ret i32 %x }", "twice defined"
        )
    assert compile_object(TWICE, "twice")


@pytest.mark.skipif(not X86, reason="speaks of x86 registers")
def test_loops_use_the_widest_registers_of_the_cpu() -> None:
    text = assembly(elementwise(1024, "  %r = fmul double %x0, 3.0"))
    register = {64: "zmm", 32: "ymm", 16: "xmm"}[host.vector_bytes()]
    assert register in text


def test_optimised_llvm_shows_vectors() -> None:
    assert f"<{host.vector_bytes() // 8} x double>" in optimised_llvm(
        elementwise(1024, "  %r = fmul double %x0, 3.0")
    )


def test_the_pipeline_follows_the_size() -> None:
    small = engine._choose_pipeline(TWICE, 3)
    line = "  %t{k} = fadd double %x0, 1.0\n"
    long_block = "".join(line.format(k=k) for k in range(engine.SLP_BLOCK_LIMIT + 1))
    many_blocks = "\n".join(f"b{k}:\n" + line * 100 for k in range(engine.LEAN_MODULE_LIMIT // 100 + 1))
    assert (small.slp, small.interleaved, small.unrolled) == (True, True, True)
    assert not engine._choose_pipeline(TWICE, 3, unroll=False).unrolled
    assert not engine._choose_pipeline(long_block + "}\n", 3).slp
    assert not engine._choose_pipeline(many_blocks + "\n}\n", 3).interleaved


@pytest.mark.parametrize("opt", [0, 1, 2, 3])
def test_every_optimisation_level_computes_the_same(opt: int) -> None:
    loaded = LoadedModule(compile_object(TWICE, "twice", opt=opt))
    y = np.empty(3)
    call_flat(loaded, [np.array([1.0, 2.0, 3.0])], [y])
    np.testing.assert_array_equal(y, [2.0, 4.0, 6.0])


@pytest.mark.parametrize("array", ["a", "frame"])
@pytest.mark.parametrize("opt", [0, 1, 2, 3])
def test_a_store_stays_before_the_gather_that_reads_the_element(opt: int, array: str) -> None:
    loaded = LoadedModule(compile_object(straight_gathers(array), "gathers", opt=opt))
    a, copies, called, results = (np.zeros(size) for size in (16, 4, 4, 4))
    numbers = [np.array([1, 0, 1, 2]), np.array([1.0, 4.0, 2.0])]
    call_flat(loaded, numbers, [a, copies, called, results])
    np.testing.assert_array_equal(copies, [0.25, 0.0, 0.25, 0.0])
    assert (
        a[1] == (0.25 if array == "a" else 0.0)
        and results[0] == 3 / (3 / 2.25 + 1)
        and results[1] == 3 / (3 / 2.0 + 1)
    )


def test_straight_code_has_no_gathers_and_loops_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[engine._Pipeline] = []
    optimise = engine._optimise

    def noted(machine: object, module: object, pipeline: engine._Pipeline) -> None:
        tried.append(pipeline)
        optimise(machine, module, pipeline)

    monkeypatch.setattr(engine, "_optimise", noted)
    gathers = re.compile("call .*@llvm.masked.gather")
    assert not gathers.search(optimised_llvm(straight_gathers()))
    loop = """
define void @kernel(ptr noalias %at, ptr noalias %x, ptr noalias %y) {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %from = getelementptr inbounds i64, ptr %at, i64 %i
  %k = load i64, ptr %from
  %element = getelementptr inbounds double, ptr %x, i64 %k
  %number = load double, ptr %element
  %twice = fmul double %number, 2.0
  %to = getelementptr inbounds double, ptr %y, i64 %i
  store double %twice, ptr %to
  %next = add nuw nsw i64 %i, 1
  %more = icmp ult i64 %next, 1024
  br i1 %more, label %loop, label %done
done:
  ret void
}"""
    del tried[:]
    text = optimised_llvm(loop)
    assert [pipeline.gathers for pipeline in tried] == [True]
    assert not X86 or "+avx512f" not in host.cpu_features() or gathers.search(text)


def test_a_large_module_compiles_with_the_lean_pipeline() -> None:
    nests = 60
    body = "\n".join(f"  %a{k} = fadd double %{'x0' if k == 0 else f'a{k - 1}'}, 1.0" for k in range(110))
    text = elementwise(64, body + "\n  %r = fadd double %a109, 0.0")
    text = "\n".join(text.replace("@kernel", f"@nest{k}" if k else "@kernel") for k in range(nests))
    assert not engine._choose_pipeline(text, 3).interleaved
    x, y = np.linspace(0, 1, 64), np.empty(64)
    call_flat(LoadedModule(compile_object(text, "large")), [x], [y])
    np.testing.assert_allclose(y, x + 110)


@linux
def test_dropped_machine_code_is_unmapped() -> None:
    code = compile_object(TWICE, "twice")
    for _ in range(200):
        LoadedModule(code)
    gc.collect()
    before = resident_kilobytes()
    for _ in range(3000):
        LoadedModule(code)
    gc.collect()
    assert resident_kilobytes() - before < 6000


@linux
def test_compiling_leaves_little_behind() -> None:
    for _ in range(20):
        compile_object(TWICE, "twice")
    gc.collect()
    before = resident_kilobytes()
    for _ in range(200):
        compile_object(TWICE, "twice")
    gc.collect()
    assert resident_kilobytes() - before < 200 * 40


def test_threads_may_compile_at_once() -> None:
    results: list[bytes] = []
    threads = [threading.Thread(target=lambda: results.append(compile_object(SUM, "sum"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert len(set(results)) == 1


def test_a_thread_that_holds_numbas_lock_may_compile() -> None:
    from numba.core.compiler_lock import global_compiler_lock

    with global_compiler_lock:
        assert compile_object(TWICE, "twice")


@pytest.mark.skipif(os.name != "posix", reason="a process sends a signal to itself")
def test_ctrl_c_during_a_compilation_leaves_everything_usable() -> None:
    finished = run_python(
        """
        import os, signal, threading, time
        import numpy as np
        from gradtape.runtime.compile.engine import LoadedModule, call_flat, compile_object
        from tests.support.kernels import TWICE, elementwise

        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it
        names = ["x0", *(f"a{k}" for k in range(250))]
        body = "".join(f"  %{new} = fadd double %{old}, 1.0\\n" for old, new in zip(names, names[1:]))
        large = elementwise(64, body + "  %r = fadd double %a249, 0.0")
        interrupted = 0
        delays = (0.0, 0.0005, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
        for delay in delays:
            timer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
            try:
                timer.start()
                compile_object(large, "large")
                timer.join()
                time.sleep(0.05)
            except KeyboardInterrupt:
                interrupted += 1
            timer.join()
        assert interrupted == len(delays), interrupted

        y = np.empty(3)
        done = []
        def work():
            done.append(call_flat(LoadedModule(compile_object(TWICE, "twice")), [np.ones(3)], [y]))
        worker = threading.Thread(target=work)
        worker.start()
        worker.join(60)
        assert done == [0] and y.tolist() == [2.0, 2.0, 2.0]
        """
    )
    assert finished.returncode == 0, finished.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_process_compiles_and_runs() -> None:
    finished = run_python(
        """
        import os, numpy as np
        from gradtape.runtime.compile.engine import LoadedModule, call_flat, compile_object
        from tests.support.kernels import TWICE, SUM
        loaded = LoadedModule(compile_object(TWICE, "twice"))
        child = os.fork()
        if child == 0:
            y = np.empty(3)
            call_flat(loaded, [np.ones(3)], [y])
            call_flat(LoadedModule(compile_object(SUM, "sum")), [y, y], [y])
            os._exit(0 if y.tolist() == [4.0, 4.0, 4.0] else 1)
        assert os.waitpid(child, 0)[1] == 0
        """
    )
    assert finished.returncode == 0, finished.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_process_forked_while_other_threads_trace_and_compile() -> None:
    finished = run_python(
        """
        import os, signal, threading, time
        import numpy as np, gradtape as gt
        gt.config.disk_cache = False
        f = gt.jit(lambda x: np.sum(np.tanh(x) * x))
        f(np.ones(1))  # Python itself cannot fork while another thread imports
        busy = threading.Thread(target=lambda: [f(np.ones(n)) for n in range(2, 15)])
        busy.start()
        while busy.is_alive():
            time.sleep(0.05)
            child = os.fork()
            if child == 0:
                signal.alarm(30)
                os._exit(0 if np.isclose(f(np.ones(77)), 77 * np.tanh(1.0)) else 1)
            assert os.waitpid(child, 0)[1] == 0
        busy.join()
        """
    )
    assert finished.returncode == 0, finished.stderr


def test_llvmlite_is_imported_by_the_compiler_alone() -> None:
    finished = run_python(
        """
        import sys
        import gradtape.runtime.compile.cache, gradtape.runtime.compile.engine, gradtape.runtime.call.entry
        assert not {"numba", "llvmlite", "scipy"} & set(sys.modules), "imported too early"
        from tests.support.kernels import TWICE
        code = gradtape.runtime.compile.engine.compile_object(TWICE, "twice")
        assert "llvmlite" in sys.modules and "numba" not in sys.modules
        """
    )
    assert finished.returncode == 0, finished.stderr


def test_numba_compiles_beside_and_calls_kernels() -> None:
    finished = run_python(
        """
        import ctypes, threading
        import numpy as np
        from gradtape.runtime.compile.engine import LoadedModule, compile_object
        from tests.support.kernels import SUM, TWICE

        code = compile_object(TWICE, "twice")
        others = []
        worker = threading.Thread(target=lambda: others.extend(compile_object(SUM, "sum") for _ in range(20)))
        worker.start()
        import numba

        loaded = LoadedModule(code)
        pointer = ctypes.c_void_p
        twice = ctypes.CFUNCTYPE(ctypes.c_int32, pointer, pointer, pointer)(loaded.address("kernel"))

        @numba.njit
        def four_times(x):
            once, both = np.empty(3), np.empty(3)
            places = np.array([x.ctypes.data, once.ctypes.data, both.ctypes.data])
            twice(places[0:].ctypes.data, places[1:].ctypes.data, 0)
            twice(places[1:].ctypes.data, places[2:].ctypes.data, 0)
            return both

        assert four_times(np.array([1.0, 2.0, 3.0])).tolist() == [4.0, 8.0, 12.0]
        worker.join()
        assert len(others) == 20 and len(set(others)) == 1
        assert compile_object(TWICE, "twice") == code, "Numba changes what LLVM makes"
        """
    )
    assert finished.returncode == 0, finished.stderr


def test_the_identity_of_the_host_names_what_code_depends_on() -> None:
    identity = host.cpu_identity()
    assert host.cpu_name() in identity
    assert host.cpu_features() in identity
    assert f"{8 * host.vector_bytes()} bits" in identity
