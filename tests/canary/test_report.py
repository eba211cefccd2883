"""Table, report and JSON of real runs: self-contained, escaped, and complete."""

from __future__ import annotations

import builtins
import importlib.util
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest

from engine_overlay import catalog
from engine_overlay.canary import report, summary
from engine_overlay.canary.finding import KINDS
from engine_overlay.cli.canary import tell
from tests.canary import broken
from tests.canary.asked import ask

PATCHES = {name: entry.patch for name, entry in catalog.load(third_party=False).entries.items()}


@pytest.fixture(scope="module")
def data() -> Iterator[dict[str, dict[str, Any]]]:
    with broken.served() as url:
        runs = {way: ask(f"{url}/{way}", levels=(1, 4)) for way in ("healthy", "as-strings", "busy")}
    yield {way: summary.make(server, taken, PATCHES) for way, (server, taken) in runs.items()}


def test_every_kind_names_patches_that_exist() -> None:
    for kind in KINDS.values():
        assert set(kind.patches) <= set(PATCHES), kind.title
        assert kind.step or kind.patches, kind.title


def test_the_table_tells_it(data: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    def told(way: str) -> str:
        tell(data[way])
        return capsys.readouterr().out

    text = told("as-strings")
    assert re.search(r"types +one tool .* FAULT +\d+x wrong type", text)
    assert re.search(r"integer +WRONG 1 of 1 +WRONG 1 of 1", text)
    assert re.search(r"string +(ok|WRONG)", text)
    assert "record_integer: value is string" in text
    assert "argument_types" in text
    assert "none faulty" in told("healthy")
    busy = told("busy")
    assert "not judged" in busy and "the server is busy (429)" in busy


def test_the_numbers_add_up(data: dict[str, Any]) -> None:
    for one in data.values():
        assert sum(row["requests"] for row in one["checks"]) == one["requests"]
        assert sum(row["faulty"] for row in one["checks"]) == one["faulty"]
        assert one["requests"] - one["judged"] == sum(row["unjudged"] for row in one["checks"])
        json.dumps(one, allow_nan=False)
    assert [row["at_once"] for row in data["healthy"]["latency"]] == [1, 4]
    assert all(0 < row["first_p50"] <= row["first_p95"] for row in data["healthy"]["latency"])


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


def test_the_report_is_one_file_with_its_pictures(data: dict[str, Any]) -> None:
    parser = _Tags()
    page = report.page(data["as-strings"])
    parser.feed(page)
    pictures = [attrs["src"] or "" for tag, attrs in parser.seen if tag == "img"]
    assert len(pictures) == 2 and all(src.startswith("data:image/png;base64,") for src in pictures)
    assert not any(tag in ("script", "link", "iframe") for tag, _ in parser.seen)
    assert "http://" not in page.replace(data["as-strings"]["url"], "")


def test_what_a_server_says_is_escaped(data: dict[str, Any]) -> None:
    bad = json.loads(json.dumps(data["as-strings"]).replace("made-up", "<script>alert(1)</script>"))
    bad["findings"][0]["piece"] = "</pre><script>"
    assert "<script>" not in report.page(bad)


def test_without_matplotlib_the_report_has_no_pictures(data: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "matplotlib" else find(name, *a))
    load = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return load(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    page = report.page(data["as-strings"])
    assert "<img" not in page and "wrong type" in page


def test_advice_names_the_patches_of_the_server_s_release(data: dict[str, Any]) -> None:
    with broken.served() as url:
        server, taken = ask(f"{url}/as-strings", ["types"])
    server.engine, server.version = "vllm", "0.20.0"
    assert "own_parser" in summary.make(server, taken, PATCHES)["findings"][0]["step"]
    assert "argument_types" not in summary.make(server, taken, PATCHES)["findings"][0]["step"]
    server.version = "0.32.0+cpu"
    assert "argument_types" in summary.make(server, taken, PATCHES)["findings"][0]["step"]
    server.overlay = True
    assert "engine-overlay doctor" in summary.make(server, taken, PATCHES)["findings"][0]["step"]
