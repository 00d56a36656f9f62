"""Writes docs/how-to/inspector.png, the picture of the inspector's page. It needs Playwright and Chromium."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

PROGRAM = """import numpy as np
import gradtape as gt


def loss(w, x, y):
    z = (x - np.mean(x, axis=0)) / np.std(x, axis=0)
    p = 1 / (1 + np.exp(-(z @ w)))
    return -np.mean(np.where(y, np.log(p), np.log(1 - p)))


x = np.random.default_rng(0).normal(size=(20000, 50))
y = x[:, 0] > 0
page = gt.inspect.open(gt.value_and_grad(loss), np.zeros(50), x, y, path="fit.html", show=False)
"""


def main() -> None:
    """Run the program, open its page, choose a line, and take a picture."""
    picture = Path(__file__).parent / "how-to" / "inspector.png"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "fit.py"
        file.write_text(PROGRAM)
        names = {"__name__": "__main__"}
        exec(compile(PROGRAM.replace("fit.html", str(file.with_suffix(".html"))), str(file), "exec"), names)
        with sync_playwright() as tools:
            browser = tools.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.goto(file.with_suffix(".html").as_uri())
            page.locator("#lines tr.made", has_text="np.exp").click()
            page.wait_for_selector(".chosen-box")
            page.screenshot(path=picture)
            browser.close()
    with Image.open(picture) as taken:
        taken.quantize(96).save(picture, optimize=True)


if __name__ == "__main__":
    main()
