"""A report from numbers: it can be read without the network, and its JSON is strict."""

from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from engine_overlay.rl import ladder, metrics, report

INF = math.inf


def run(name: str, new: list, old: list) -> dict:
    values = [metrics.pad(rows)[0] for rows in (new, old)]
    mask = metrics.pad(old)[1]
    numbers = metrics.compare(*values, mask)
    return {
        "name": name, "change": name, "numbers": numbers, "settings": {}, "readings": {"processed": numbers},
        "rows": (*values, mask),
    }  # fmt: skip


@pytest.fixture
def data() -> dict:
    sequences = [{"sequence": 0, "tokens": 2, "mean_abs_log_ratio": math.nan, "log_ratio": [None]}]
    return {
        "title": "Parity <of> this & that",
        "about": {"model": "<script>alert(1)</script>"},
        "runs": [
            run("stock", [[-0.5, -1.0], [-INF]], [[-1.0, -2.0], [-1.0]]),
            run("all", [[-1.0, -2.0]], [[-1.0, -2.0]]),
        ],
        "findings": [ladder.Finding(ladder.SEMANTIC, "mode", "cause", "a < b", "turn it", 0.5, 0.0)],
        "sequences": sequences,
    }


class _Balanced(HTMLParser):
    VOID = {"meta", "img"}

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.images: list[str] = []

    def handle_starttag(self, tag: str, attrs: list) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "img":
            self.images.append(dict(attrs)["src"])

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_stands_alone(data: dict, tmp_path: Path) -> None:
    page, beside = report.write(data, tmp_path / "r.html")
    text = page.read_text()
    parser = _Balanced()
    parser.feed(text)
    assert parser.open == []
    assert len(parser.images) == 3 and all(src.startswith("data:image/png;base64,") for src in parser.images)
    assert not re.search(r"(?:src|href)=.https?:", text)
    assert "<script>" not in text and "&lt;script&gt;" in text
    assert beside == tmp_path / "r.json"


def test_the_json_is_strict_and_complete(data: dict, tmp_path: Path) -> None:
    _, beside = report.write(data, tmp_path / "r.html")

    def refuse(name: str) -> None:
        raise AssertionError(name)

    found = json.loads(beside.read_text(), parse_constant=refuse)
    assert [r["name"] for r in found["runs"]] == ["stock", "all"]
    assert found["runs"][0]["numbers"]["ratio_new_old"] == pytest.approx((math.exp(0.5) + math.e) / 2)
    assert found["runs"][0]["numbers"]["dropped_by_trainer"] == 1
    assert found["runs"][0]["by_position"]["ratio"] == [pytest.approx(math.exp(0.5)), pytest.approx(math.e)]
    assert found["findings"][0]["status"] == "cause"
    assert found["sequences"][0]["mean_abs_log_ratio"] is None


def test_a_run_of_which_nothing_can_be_compared_still_gives_a_report(data: dict, tmp_path: Path) -> None:
    data["runs"] = [run("none", [[-INF]], [[-1.0]])]
    page, _ = report.write(data, tmp_path / "r.html")
    assert "–" in page.read_text()


def test_a_split_is_shown(data: dict, tmp_path: Path) -> None:
    numbers = metrics.compare([[0.0]], [[0.0]])
    data["split"] = dict.fromkeys(("mismatch", "update", "total"), numbers)
    page, beside = report.write(data, tmp_path / "r.html")
    assert "policy update apart" in page.read_text()
    assert set(json.loads(beside.read_text())["split"]) == {"mismatch", "update", "total"}
