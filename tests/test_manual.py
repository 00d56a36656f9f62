"""``python -m gradtape manual``: topics, pages by name, and pages by words."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradtape.__main__ import main
from gradtape.manual import installed_text, pages, search, whole_text

ROOT = Path(__file__).parents[1]


def test_the_manual_has_every_page_for_users() -> None:
    made = list(pages(whole_text(ROOT)))
    topics = {page.topic for page in made}
    assert {page.stem for page in (ROOT / "docs" / "how-to").glob("*.md")} <= topics
    assert {
        "README",
        "api",
        "kinks",
        "ShapeError",
        "gt.grad",
        "gt.scipy.minimize",
        "getting-started",
    } <= topics
    assert {f"gt.{name}" for name in ("jit", "vmap", "scan", "GradientTape")} <= topics
    assert all(page.text.strip() and page.title for page in made)


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["loops"], "# Loops and branches"),
        (["gt.grad"], "# gt.grad"),
        (["value_and_grad"], "# gt.value_and_grad"),
        (["ShapeError"], "# ShapeError"),
        (["errors", "standard"], "More: "),
        ([], "getting-started"),
    ],
)
def test_topics(words: list[str], printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["manual", *words]) == 0
    assert printed in capsys.readouterr().out


@pytest.mark.parametrize(
    ("question", "topic"),
    [
        ("sparse jacobian", "gt.sparse_jacobian"),
        ("while loop", "gt.while_loop"),
        ("stop gradient", "gt.stop_gradient"),
        ("custom rule", "custom-derivatives"),
        ("scipy minimize", "gt.scipy.minimize"),
        ("print inside jit", "gt.print"),
        ("how to export to C", "export"),
        ("ode", "odes-and-integrals"),
        ("nan gradient", "debugging"),
        ("random numbers", "random-numbers"),
        ("pandas groupby", "tables"),
        ("recompiled", "lengths"),
        ("batch jacobian", "jacobians"),
    ],
)
def test_the_first_answer_is_the_page_of_the_topic(question: str, topic: str) -> None:
    assert search(installed_text(), question)[0].topic == topic


def test_the_whole_manual(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["manual", "all"]) == 0
    assert capsys.readouterr().out == installed_text() + "\n"


def test_words_that_no_page_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["manual", "loopss"]) == 2
    assert "did you mean loops?" in capsys.readouterr().err
    assert main(["manual", "qwertzuiop"]) == 2
    assert "lists the topics" in capsys.readouterr().err
