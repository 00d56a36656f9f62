"""The inspector's model: lines, costs, nodes, nests, instructions, events and problems of functions and tapes."""

from __future__ import annotations

import json
from pathlib import Path

import numba
import numpy as np
import pytest

import gradtape as gt
from gradtape.api.inspect.page.document import write_page
from gradtape.api.inspect.page.model import WatchedRun, watch_call
from gradtape.runtime.compile import engine

ROWS = 300


def loss(w, x):
    z = x @ w
    p = 1 / (1 + np.exp(-z))
    return np.sum(np.log(p))


def line_of(text):
    """Return the line of this file that begins with a text."""
    return next(
        k
        for k, line in enumerate(Path(__file__).read_text().splitlines(), 1)
        if line.strip().startswith(text)
    )


@pytest.fixture(scope="module")
def model():
    return watch_call(gt.value_and_grad(loss), (np.ones(4), np.ones((ROWS, 4))), {}).model("loss")


@pytest.fixture(scope="module")
def program(model):
    return model["programs"][0]


def test_lines_have_costs_in_both_directions(model, program):
    (file,) = [k for k, file in enumerate(model["files"]) if file["path"] == __file__]
    lines = {(line["line"], line["way"]): line for line in program["lines"] if line["file"] == file}
    exp, matmul = line_of("p = 1"), line_of("z = x @")
    assert {(exp, 0), (exp, 1), (matmul, 0), (matmul, 1)} <= lines.keys()
    assert "exp" in lines[exp, 0]["ops"]
    assert sum(line["share"] for line in program["lines"]) == pytest.approx(1)
    assert all(line["seconds"] > 0 for line in lines.values())
    assert lines[matmul, 0]["operations"] >= 2 * 4 * ROWS and lines[matmul, 0]["moved"] >= 8 * 4 * ROWS
    assert model["files"][file]["lines"][exp - model["files"][file]["first"]].strip().startswith("p = 1")


def test_costs_of_lines_are_those_of_their_nests(program):
    for key in ("operations", "moved"):
        of_nests = sum(
            row[2 if key == "operations" else 3] for nest in program["nests"] for row in nest["nodes"]
        )
        assert sum(line[key] for line in program["lines"]) == pytest.approx(of_nests)
    assert sum(nest["share"] for nest in program["nests"]) == pytest.approx(1)
    assert program["seconds"] == pytest.approx(sum(nest["seconds"] for nest in program["nests"]))
    assert program["runs"] >= 1


@pytest.mark.parametrize("stage", ["compiled", "traced"])
def test_the_graph_leads_from_arguments_to_results(program, stage):
    nodes, edges = program[stage]["nodes"], program[stage]["edges"]
    assert {row["op"] for row in nodes if row["kind"] == 1} == {"w", "x"}
    assert {row["result"] for row in nodes if "result" in row} == {0, 1}
    ways = {row["op"]: row["way"] for row in nodes}
    assert ways["log"] == 0 and {row["way"] for row in nodes} == {0, 1}
    assert any(row.get("of") == "exp" for row in nodes)
    reached = {k for k, row in enumerate(nodes) if row["kind"] == 1}
    for start, end, _ in edges:
        reached |= {end} if start in reached else set()
    assert {k for k, row in enumerate(nodes) if "result" in row} <= reached
    (matrix,) = {type_ for start, _, type_ in edges if nodes[start]["op"] == "x"}
    assert matrix == f"f64[{ROWS},4]"


def test_loops_and_instructions_refer_to_nodes_of_their_nest(program):
    nodes = program["compiled"]["nodes"]
    in_loops = {nodes[node]["op"] for text, node, _ in program["loops"] if "np.exp" in text}
    assert in_loops == {"exp"}
    nest = next(n for n in program["nests"] if any(nodes[node]["op"] == "exp" for node, *_ in n["nodes"]))
    number = program["nests"].index(nest)
    own = {node for node, *_ in nest["nodes"]}
    assert {node for _, node, which in program["loops"] if which == number and node >= 0} <= own
    for listing in program["listings"].values():
        lines = [line for name in nest["functions"] for line in listing[name]]
        assert own & {node for _, node in lines}
    assert any(node in own and " shares loop " in note for note, node in program["notes"])


def test_events_say_what_was_traced_and_compiled(model):
    assert [event["kind"] for event in model["events"]][:3] == ["signature", "trace", "kernel"]
    assert model["events"][1]["seconds"] > 0 and "float64[4]" in model["events"][0]["text"]


def test_tapes_are_in_the_timeline():
    x = np.arange(3.0)

    def step():
        with gt.GradientTape() as tape:
            watched = tape.watch(x)
            y = np.sum(np.tanh(watched) ** 2)
        return tape.gradient(y, watched).numpy()  # computed here

    with WatchedRun() as seen:
        for _ in range(4):
            step()
    model = seen.model("steps")
    events = [
        event for event in model["events"] if model["functions"][event["function"]]["name"] == "tape in step"
    ]
    assert [event["kind"] for event in events][:2] == ["interpreter", "kernel"]
    assert {event["line"] for event in events} == {line_of("return tape.gradient(y, watched).numpy()")}
    assert events[1]["seconds"] > 0 and events[0]["at"] <= events[1]["at"]


def test_a_page_that_is_opened_again_compiles_nothing(monkeypatch, tmp_path):
    emitted = []
    emit = engine._emit
    monkeypatch.setattr(engine, "_emit", lambda *given: emitted.append(given) or emit(*given))
    function = gt.grad(loss)
    arguments = np.ones(4), np.ones((7, 4))
    with gt.config.override(
        cache_dir=str(tmp_path)
    ):  # an earlier run may have left its listings in the usual folder
        models = [watch_call(function, arguments, {}).model("loss") for _ in range(2)]
        assert emitted
        emitted.clear()
        models.append(watch_call(function, arguments, {}).model("loss"))
        assert not emitted
    listings = [model["programs"][0]["listings"] for model in models]
    assert listings[0] == listings[1] == listings[2]


def test_the_page_embeds_the_model(model):
    page = write_page({**model, "title": "</script><b>"})
    begin = page.index('id="model">') + len('id="model">')
    text = page[begin : page.index("</script>", begin)]
    assert json.loads(text) == json.loads(json.dumps({**model, "title": "</script><b>"}))
    assert (
        "<b>"
        not in page.replace("<b>", "", 0).split('id="paper"')[0].split("<title>")[1].split("</title>")[0]
    )
    for wanted in ("Lines", "Loop nests", "Loops", "np.exp", "p = 1 / (1 + np.exp(-z))"):
        assert wanted.replace("&", "&amp;") in page.split('id="paper"')[1].split("<script")[0]


def test_bodies_of_loops_are_inside_of_their_nodes():
    def body(state, force):
        return np.sin(state) + force, state

    function = gt.jit(lambda x, forces: gt.scan(body, x, forces)[1])
    program = watch_call(function, (1.0, np.ones(50)), {}).model("scan")["programs"][0]
    nodes = program["compiled"]["nodes"]
    (sine,) = [k for k, row in enumerate(nodes) if row["op"] == "sin"]
    assert nodes[nodes[sine]["parent"]]["op"] == "scan" and nodes[sine]["part"] == "body"
    assert any(node == sine for nest in program["nests"] for node, *_ in nest["nodes"])
    assert any(node == sine for text, node, _ in program["loops"] if "np.sin" in text)


def rows_of(text):
    """Return the sums of a triangle's rows, by loops that are compiled from their code."""
    total = np.zeros(len(text))
    for i in range(len(text)):
        state = 0.0
        for j in range(i):
            if text[j] > 0:
                state = np.sin(state) * text[j]
            else:
                state = state - text[j]
        total[i] = state
    return total


def test_loops_from_code_are_open_and_their_lines_have_the_cost():
    compiled = numba.njit(rows_of)
    function = gt.value_and_grad(lambda x: np.sum(compiled(x)))
    model = watch_call(function, (np.array([1.0, -2.0, 3.0, 0.5]),), {}).model("rows")
    (program,) = model["programs"]
    nodes = program["compiled"]["nodes"]
    calls = [k for k, row in enumerate(nodes) if row["op"].startswith("procedure")]

    number = {id(row): k for k, row in enumerate(nodes)}

    def depth(row):
        return 0 if row["parent"] < 0 else 1 + depth(nodes[row["parent"]])

    def top(row):
        return number[id(row)] if row["parent"] < 0 else top(nodes[row["parent"]])

    sine, store = line_of("state = np.sin"), line_of("total[i] = state")
    sines = [row for row in nodes if row["op"] == "sin" and row["line"] == sine]
    assert {top(row) for row in sines} == set(calls) and {depth(row) for row in sines} == {4}
    assert {row["way"] for row in nodes if row["line"] == store} == {0, 1}
    loops = {row["line"] for row in nodes if row["op"] == "for"}
    assert {line_of("for i in range(len(text))"), line_of("for j in range(i)")} <= loops
    assert any(row["type"] == "4 times" for row in nodes) and any("about" in row["type"] for row in nodes)
    for source, target, _ in program["compiled"]["edges"]:
        assert source < target and nodes[source]["parent"] == nodes[target]["parent"]
    costs = {(line["line"], line["way"]): line for line in program["lines"]}
    assert costs[sine, 0]["seconds"] > 0 and costs[sine, 1]["seconds"] > 0
    assert costs[sine, 0]["operations"] > costs[store, 0]["operations"]
    nests = [nest for nest in program["nests"] if nest["kind"].startswith("procedure")]
    assert len(nests) == len(calls)
    for nest in nests:
        inside = {number for number, *_ in nest["nodes"]}
        assert len({top(nodes[number]) for number in inside}) == 1
        assert sum(share for _, share, *_ in nest["nodes"]) == pytest.approx(1)
        place = program["nests"].index(nest)
        lines = {text.strip(): node for text, node, own in program["loops"] if own == place}
        assert {node for node in lines.values() if node >= 0} <= inside
        assert any(text.startswith("for ") and nodes[node]["op"] == "for" for text, node in lines.items())
        for listing in ("llvm", "assembly"):
            of = {
                nodes[k]["line"]
                for f in nest["functions"]
                for _, k in program["listings"][listing][f]
                if k >= 0
            }
            assert {sine, store} <= of


def test_a_guard_that_misses_is_an_event_with_its_line():
    @gt.jit
    def steep(x):
        if np.sum(x) > 0:
            return x * 2
        return x * 3

    with WatchedRun() as seen:
        steep(np.ones(3))
        steep(-np.ones(3))
    model = seen.model("guards")
    (guard,) = [event for event in model["events"] if event["kind"] == "guard"]
    assert guard["line"] == line_of("if np.sum(x) > 0")
    traces = [program for program in model["programs"] if program["guards"]]
    assert sorted(program["guards"][0]["expected"] for program in traces) == ["False", "True"]
    assert sum(event["kind"] == "trace" for event in model["events"]) == 2


def test_numbers_that_are_not_finite_are_found_on_the_graph():
    slope = gt.grad(lambda x: np.sum(np.sqrt(x) * x))
    with WatchedRun() as seen:
        slope(np.ones(2))
        slope(np.array([1.0, 0.0]))
    (problem,) = seen.model("nan")["problems"]
    assert problem["kind"] == "nan" and problem["call"] == 2 and problem["what"].startswith("divide gave inf")
    program = seen.model("nan")["programs"][0]
    assert {program[stage]["nodes"][node]["op"] for _, stage, node in problem["nodes"]} == {"divide"}


def test_gradients_that_are_none_or_zero_are_explained():
    flat = gt.grad(lambda x: np.sum(np.floor(x)) + 1.0)
    with WatchedRun() as seen:
        flat(np.ones(2))
        with gt.GradientTape() as tape:
            x = tape.watch(np.array([1.5, 2.5]))
            y = np.sum(x.astype(int) * 2.0)
        assert tape.gradient(y, x) is None
    found = {problem["kind"]: problem for problem in seen.model("none")["problems"]}
    assert found["none"]["what"] == "a gradient is None: integer" and found["none"]["line"] == line_of(
        "y = np.sum(x.ast"
    )
    assert "zero derivative" in found["zero"]["what"] and found["zero"]["line"] == line_of("flat = gt.grad")


def test_what_the_interpreter_runs_has_lines_and_a_reason():
    function = gt.jit(lambda x: np.sin(x) * 2)
    with pytest.warns(gt.errors.CompileWarning, match="float16"):
        model = watch_call(function, (np.array([2, 1], np.float16),), {}).model("half")
    (program,) = model["programs"]
    assert program["compiled"] is None and program["reason"] and program["origin"] == "interpreter"
    assert program["traced"]["nodes"] and sum(line["share"] for line in program["lines"]) == pytest.approx(1)
    assert program["reason"] in write_page(model)


def test_a_function_with_side_effects_is_called_once():
    total = gt.Variable(0.0)

    @gt.jit
    def add(x):
        total.assign_add(x)
        return total * 2

    seen = watch_call(add, (3.0,), {})
    assert float(total) == 3.0 and seen.model("add")["functions"][0]["calls"] == 1
