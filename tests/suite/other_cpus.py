"""Kernels for a CPU with fewer instruction sets than this machine's: ``python -m pytest --cpu nehalem``.

What a test compares must not depend on the machine: the digits that a page of the documentation prints, the unknown that moves most
along a flat direction, the text of LLVM IR. Programs of their own (`tests/support/processes.py`) run with the real CPU.
"""

from __future__ import annotations

import llvmlite.binding as llvm

MISSING = {
    "haswell": ("avx512", "avx10", "amx"),
    "nehalem": ("avx", "amx", "bmi", "f16c", "fma", "gfni", "vaes", "vpclmulqdq", "xop"),
}
"""LLVM's names of CPUs, and how the names of features begin that each of them has not."""


def compile_for(cpu: str) -> None:
    """Let LLVM take `cpu` for the host's, in this process, before gradtape has asked for it."""
    features = llvm.get_host_cpu_features()
    for name in features:
        features[name] = features[name] and not name.startswith(MISSING[cpu])
    llvm.get_host_cpu_features = lambda: features
    llvm.get_host_cpu_name = lambda: cpu
