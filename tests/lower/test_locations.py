"""Debug locations: instructions know their nodes, in LLVM IR and in the assembly, and are the same instructions."""

from __future__ import annotations

import numpy as np

import gradtape as gt
from gradtape.kinds.elementwise import Libm
from gradtape.lower.attribution import maker_of
from gradtape.lower.locations import assembly_listing, llvm_listing, with_locations
from gradtape.lower.pipeline import lower_located
from gradtape.lower.target.vecmath import inline_variants
from gradtape.runtime.compile.engine import listings


def loss(w, x):
    z = (x - np.mean(x, axis=0)) @ w
    return np.sum(np.exp(-z * z))


def test_locations_name_nodes_and_change_no_instruction():
    function = gt.value_and_grad(loss)
    function(np.ones(3), np.ones((40, 3)))
    located = lower_located(function.site.specialisations()[0].graph)
    numbers = {node: k for k, node in enumerate(located.graph.nodes, 1)}
    ops = ["", *[node.op.name for node in located.graph.nodes]]

    def node_of(function, name):
        return numbers.get(maker_of([name], located.makers), 0)

    names = {name for group in located.functions for name in group}
    plain = assembly_listing(listings(located.ir_text)[1], names.__contains__)
    llvm, assembly = listings(with_locations(located.ir_text, node_of))
    found = assembly_listing(assembly, names.__contains__)
    assert {name: [line for line, _ in lines] for name, lines in found.items()} == {
        name: [line for line, _ in lines] for name, lines in plain.items()
    }
    in_llvm = llvm_listing(llvm)
    # The exponential consists of such instructions, and so does a quotient by a known number.
    made = "llvm.fma" if inline_variants(Libm("exp"), False) else "exp"
    lines = [line for name in names for line in in_llvm.get(name, ())]
    called = {ops[node] for line, node in lines if made in line and " call " in line}
    assert called - {"divide"} == {"exp"}
    assert not any("!dbg" in line for lines in in_llvm.values() for line, _ in lines)
    nests = [group for group in located.functions[:-1] if group]
    assert nests and all(name in found and name in in_llvm for group in nests for name in group)
    assert {"subtract", "exp"} <= {ops[node] for name in nests[-1] for _, node in found[name]}


def test_reasons_say_why_nests_are_apart():
    function = gt.jit(lambda x: np.sum((x - np.mean(x, axis=0)) ** 2, axis=0))
    function(np.ones((40, 3)))
    located = lower_located(function.site.specialisations()[0].graph)
    apart = [note for note in located.notes if "does not share" in note]
    assert any("which is complete only after that loop" in note for note in apart)
    assert {note.node for note in apart} <= set(located.graph.nodes)
    explained = gt.inspect.explain(function)
    assert "shares loop" in explained or "is stored" in explained


def test_routines_of_several_lines_have_no_locations():
    function = gt.jit(gt.vmap(lambda x: np.linalg.solve(np.eye(3) * x, np.ones(3))))
    function(np.arange(1.0, 5.0))
    located = lower_located(function.site.specialisations()[0].graph)
    assert "(\n" in located.ir_text  # the head of a routine
    llvm, _ = listings(with_locations(located.ir_text, lambda function, name: 1))
    assert {node for _, node in llvm_listing(llvm)["kernel"]} == {0, 1}
