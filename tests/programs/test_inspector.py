"""The inspector's page in a browser: one selection in all panes, by mouse and keyboard, at 10,000 nodes, on paper, and live."""

from __future__ import annotations

import copy
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import numba
import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

import gradtape as gt
from gradtape.api.inspect.page.document import write_page
from gradtape.api.inspect.page.model import WatchedRun, watch_call
from gradtape.api.inspect.page.server import PageServer


def loss(w, x):
    z = (x - np.mean(x, axis=0)) @ w
    p = 1 / (1 + np.exp(-z))
    return np.sum(np.log(p))


def simulate(x, forces):
    def body(state, force):
        return np.sin(state) + force, state

    return gt.scan(body, x, forces)[1]


@numba.njit
def decay(x):
    state = 1.0
    for i in range(len(x)):
        state = 0.5 * state * x[i] + x[i]
    return state


@pytest.fixture(scope="module")
def model() -> dict[str, Any]:
    with WatchedRun() as seen:
        gt.value_and_grad(loss)(np.ones(4), np.random.default_rng(0).normal(size=(200, 4)))
        gt.jit(simulate)(1.0, np.ones(50))
        gt.grad(lambda x: np.sum(np.sqrt(x) * x))(np.array([1.0, 0.0]))
    found = seen.model("three functions")
    order = ["value_and_grad(loss)", "simulate", "grad(<lambda>)"]
    assert sorted(function["name"] for function in found["functions"]) == sorted(order)
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None and "CI" not in os.environ:
        pytest.skip("no Chromium: install it by the system's package manager")
    assert found is not None, ".ci/run installs Chromium"
    with sync_playwright() as tools:
        made = tools.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield made
        made.close()


def opened(browser: Browser, address: str, width: int = 1440, **options: Any) -> tuple[Page, list[str]]:
    """Return a page whose errors and requests to other addresses are noted."""
    page = browser.new_page(viewport={"width": width, "height": 900}, **options)
    page.set_default_timeout(10_000)
    troubles: list[str] = []
    page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: troubles.append(str(error)))
    allowed = (address.partition("?")[0], "data:", "blob:")
    page.on(
        "request", lambda request: None if request.url.startswith(allowed) else troubles.append(request.url)
    )
    page.goto(address)
    return page, troubles


@pytest.fixture
def address(model: dict[str, Any], tmp_path: Path) -> str:
    (tmp_path / "page.html").write_text(write_page(model))
    return (tmp_path / "page.html").as_uri()


def choose_program(page: Page, name: str) -> None:
    option = page.locator("#program option", has_text=name).first
    page.locator("#program").select_option(option.get_attribute("value"))


def double_click(page: Page, box: Any) -> None:
    """Double-click a box of the graph when it is drawn: boxes are found by their place, and drawn in the frame after a change."""
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    box.dblclick()


def open_box(page: Page, box: Any, inner: Any) -> None:
    """Open a box of the graph, until what is inside is drawn: on a busy machine the second click can miss a frame."""
    for _ in range(5):
        double_click(page, box)
        page.wait_for_timeout(500)
        if inner.count() and inner.first.is_visible():
            return


def of_line(page: Page, text: str) -> Any:
    return page.locator("#lines tr.made", has_text=text).first


def test_one_selection_in_all_panes(browser: Browser, address: str) -> None:
    page, troubles = opened(browser, address)
    choose_program(page, "loss")
    of_line(page, "p = 1 / ").click()
    page.wait_for_selector(".chosen-box")
    titles = page.locator(".chosen-box text:not(.sub)").all_text_contents()
    assert len(titles) == 2 and sum(title.startswith("∂") for title in titles) == 1
    assert page.locator("#lines tr.chosen").count() == 1
    assert page.locator(".nest.chosen").count() >= 1 and page.locator(".nest.chosen.shown").count() == 1
    for pane, text in (("loop", "np.exp"), ("llvm", "fma"), ("assembly", "")):
        assert page.locator(f"#{pane} .chosen", has_text=text).count() >= 1
    assert "shares loop" in page.locator(".nest.shown .why").inner_text()
    assert page.locator("#details td").count() == 10  # two directions with time, share, operations and bytes

    # The other way round: an instruction has one node, and its line.
    page.locator("#loop .of", has_text="np.log").first.click()
    expect(page.locator(".chosen-box")).to_have_count(1)
    assert "np.log" in page.locator("#lines tr.chosen").inner_text()
    assert "log" in page.locator("#details").inner_text()

    # A nest has all of its lines; a box has its own.
    page.locator(".nest").first.click()
    assert page.locator("#lines tr.chosen").count() >= 1
    page.locator("#stage").select_option("traced")
    page.locator(".box", has_text="argument 0").or_(page.locator(".box", has_text="w")).first.click()
    page.locator(".box", has_text="log").first.click()
    assert "np.log" in page.locator("#lines tr.chosen").inner_text()
    page.keyboard.press("Escape")
    expect(page.locator(".chosen, .chosen-box")).to_have_count(0)
    assert troubles == []
    page.close()


def test_the_keyboard_reaches_everything(browser: Browser, address: str) -> None:
    page, troubles = opened(browser, address)
    choose_program(page, "loss")
    page.keyboard.press("/")
    page.keyboard.type("exp")
    assert page.locator("#found [role=option]").count() >= 2
    page.keyboard.press("Enter")
    page.wait_for_selector(".chosen-box")
    assert page.locator("#lines tr.chosen", has_text="np.exp").count() == 1
    page.keyboard.press("Escape")

    of_line(page, "z = ").focus()
    page.keyboard.press("ArrowDown")
    assert "p = 1" in page.locator("#lines tr.chosen").inner_text()
    assert page.evaluate("document.activeElement.getAttribute('aria-selected')") == "true"

    page.locator("#canvas").focus()
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowDown")
    page.wait_for_selector(".box.current")
    sums = page.locator(".box text", has_text=re.compile("^reduce_sum"))
    page.keyboard.press("Enter")  # a line's box becomes the boxes of its nodes
    expect(sums).to_have_count(1)
    page.keyboard.press("Enter")
    expect(sums).to_have_count(0)
    for key in ("+", "-", "0"):
        page.keyboard.press(key)

    page.locator("#nests").focus()
    shown = page.locator(".nest.shown").get_attribute("data-nest")
    page.keyboard.press("ArrowUp" if shown != "0" else "ArrowDown")
    assert page.locator(".nest.shown").get_attribute("data-nest") != shown
    page.locator("#loop").focus()
    page.keyboard.press("ArrowDown")
    assert page.locator("#loop .current.chosen").count() == 1
    page.locator("#tab-nests").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#events tr").count() >= 9 and page.locator("#events-panel").is_visible()
    unnamed = page.evaluate(
        "[...document.querySelectorAll('button, select, input')].filter(item => !item.labels?.length && !item.innerText.trim()"
        " && !item.getAttribute('aria-label')).map(item => item.id)"
    )
    assert unnamed == [] and troubles == []
    page.close()


def test_loops_open_and_problems_lead_to_their_nodes(browser: Browser, address: str) -> None:
    page, troubles = opened(browser, address)
    choose_program(page, "simulate")
    page.locator("#grouping").select_option("node")
    inner = page.locator(".box text", has_text=re.compile("^sin$"))
    open_box(page, page.locator(".box", has_text="scan").first, inner)
    expect(inner).to_have_count(1)
    assert page.locator("#way button").count() == 2
    page.locator("#canvas").focus()
    page.keyboard.press("Backspace")
    expect(page.locator("#way button")).to_have_count(0)
    page.locator("#problems li", has_text="divide gave inf").click()
    page.wait_for_selector(".bad-box.chosen-box")
    assert page.locator("#lines tr.bad.chosen", has_text="np.sqrt").count() == 1
    assert "in the derivative of sqrt" in page.locator("#details").inner_text()
    assert troubles == []
    page.close()


def test_loops_from_code_open_down_to_their_lines(browser: Browser, tmp_path: Path) -> None:
    model = watch_call(gt.value_and_grad(decay), (np.array([1.0, -2.0, 3.0]),), {}).model("decay")
    (tmp_path / "page.html").write_text(write_page(model))
    page, troubles = opened(browser, (tmp_path / "page.html").as_uri())
    of_line(page, "state = 0.5").click()
    row = of_line(page, "state = 0.5")
    assert all(cell.inner_text() for cell in row.locator(".figure").all()), "time forward and backward"
    assert page.locator("#loop .chosen", has_text="0.5").count() >= 1
    assert page.locator("#llvm .chosen").count() >= 1 and page.locator("#assembly .chosen").count() >= 1
    page.locator("#grouping").select_option("node")
    double_click(page, page.locator(".box", has_text="procedure_vjp").first)
    expect(page.locator("#way")).to_contain_text("procedure_vjp")
    inner = page.locator(".box", has_text="multiply").first
    open_box(page, page.locator(".box.chosen-box", has_text="for").first, inner)
    expect(inner).to_be_visible()
    of_line(page, "for i in range").click()
    assert "for" in page.locator("#details").inner_text()
    assert page.locator(".nest", has_text="loops from code").count() >= 1
    assert troubles == []
    page.close()


def inflated(model: dict[str, Any], count: int) -> dict[str, Any]:
    """Return a model whose first program has so many nodes at a fortieth as many lines."""
    made = copy.deepcopy(model)
    made["problems"] = []
    program = made["programs"][0]
    lines = count // 40
    made["files"] = [
        {"name": "long.py", "path": "long.py", "first": 1, "lines": [f"y = f{k}(y)" for k in range(lines)]}
    ]
    nodes, edges = [], []
    for k in range(count):
        way = int(k >= count // 2)
        line = (k if not way else count - 1 - k) % (count // 2) // 20 + 1
        nodes.append(
            {
                "kind": 0,
                "op": f"op{k % 7}",
                "type": "f64[9]",
                "file": 0,
                "line": line,
                "way": way,
                "parent": -1,
                "part": "",
                "call": "f",
            }
        )
        edges += [(before, k, "f64[9]") for before in (k - 1, k - 17) if before >= 0]
    program.update(
        traced={"nodes": nodes, "edges": edges},
        compiled={"nodes": nodes, "edges": edges},
        notes=[],
        guards=[],
    )
    program["loops"] = [(f"t{k} = t{k - 1} * 2.0", k, 0) for k in range(2000)]
    nest = {**program["nests"][0], "nodes": [[k, 1 / count, 1.0, 8] for k in range(count)], "functions": []}
    program["nests"] = [nest]
    ways = [(line, way) for line in range(1, lines + 1) for way in (0, 1)]
    program["lines"] = [
        {
            "file": 0,
            "line": line,
            "way": way,
            "seconds": 1e-6,
            "operations": 20.0,
            "moved": 160,
            "ops": ["op1"],
            "share": 1 / len(ways),
        }
        for line, way in ways
    ]
    made["functions"] = [{**made["functions"][program["function"]], "file": 0, "line": 1, "programs": [0]}]
    program["function"] = 0
    made["programs"], made["events"] = [program], []
    return made


def test_ten_thousand_nodes_can_be_used(browser: Browser, model: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "large.html").write_text(write_page(inflated(model, 10_000)))
    page, troubles = opened(browser, (tmp_path / "large.html").as_uri())
    # By lines there are 500 boxes, of which those in sight are drawn.
    page.wait_for_selector(".box")
    assert page.locator(".box").count() < 400
    of_line(page, "f7(y)").click()
    page.wait_for_selector(".chosen-box")
    page.locator("#whole").click()
    expect(page.locator(".chosen-box")).to_have_count(2)
    # All nodes: one shape for each colour while they are small, boxes when they are near.
    page.locator("#grouping").select_option("node")
    page.locator("#whole").click()
    expect(page.locator("#view > path.forward-box")).to_have_count(1)
    assert page.evaluate("document.querySelectorAll('#view *').length") < 3000
    of_line(page, "f7(y)").click()
    expect(page.locator(".chosen-box")).to_have_count(40)
    page.locator("#closer").evaluate("button => { for (let k = 0; k < 30; k += 1) button.click(); }")
    expect(page.locator("#view > path.forward-box")).to_have_count(0)
    assert page.locator(".box").count() < 400
    assert troubles == []
    page.close()


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1440, "dark")])
def test_it_fits_the_window_and_the_scheme(
    browser: Browser, address: str, width: int, scheme: Any, tmp_path: Path
) -> None:
    page, troubles = opened(browser, address, width, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    luminance = "Math.max(...getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number))"
    assert (page.evaluate(luminance) > 128) == (scheme == "light")
    page.locator("#theme").click()
    assert (page.evaluate(luminance) > 128) == (scheme == "dark")
    of_line(page, "p = 1").or_(of_line(page, "np.sin")).or_(of_line(page, "np.sqrt")).first.click()
    page.screenshot(path=tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 20_000 and troubles == []
    page.close()


def test_paper_has_tables_without_scripts(browser: Browser, address: str) -> None:
    page, _ = opened(browser, address, java_script_enabled=False)
    assert page.locator("#paper").is_visible() and not page.locator("#app").is_visible()
    text = page.locator("#paper").inner_text()
    for wanted in ("Lines", "Loop nests", "Loops", "p = 1 / (1 + np.exp(-z))", "np.exp(t", "divide gave inf"):
        assert wanted in text
    page.close()
    page, _ = opened(browser, address)
    assert not page.locator("#paper").is_visible()
    page.emulate_media(media="print")
    assert page.locator("#paper").is_visible() and not page.locator("#app").is_visible()
    page.close()


def test_a_live_page_follows(browser: Browser, model: dict[str, Any]) -> None:
    ran = Event()
    server = PageServer(model, ran.set)
    try:
        page, troubles = opened(browser, server.url)
        choose_program(page, "loss")
        of_line(page, "p = 1").click()
        server.publish({**model, "title": "three functions, again"})
        expect(page.locator("#title")).to_have_text("three functions, again")
        assert page.locator("#lines tr.chosen", has_text="p = 1").count() == 1  # what was chosen stays
        page.locator("#again").click()
        expect(page.locator("#state")).to_have_text("running")
        assert ran.wait(10) and troubles == []
    finally:
        server.close()
    expect(page.locator("#state")).to_have_text("the server has ended")
    page.close()
