"""2,000 made-up answers on real engines, 20,000 where all is run: right in every part, the same streaming and full."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from engine_overlay.verify import releases
from tests.matrix import environment, spread, store

RELEASES = ("vllm-0.24.0", "vllm-0.28.0", "vllm-0.33.0", "aphrodite_engine-0.24.1")
EXAMPLES = 5000 if spread.EVERY else 500

pytestmark = pytest.mark.engine


def found(label: str, folder: Path, examples: int, *, overlay: bool = True) -> dict[str, Any]:
    out = folder / f"{label}-{overlay}.json"
    command = ["-m", "tests.properties.search", "all", "--examples", str(examples), "--out", str(out)]
    done = environment.run(command, releases.fetch(releases.named(label)), overlay=overlay)
    if not out.is_file():
        raise AssertionError(f"the search ended with status {done.returncode}:\n{(done.stdout or '')[-3000:]}")
    return json.loads(out.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def searches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[dict[str, Any]]]]:
    folder = tmp_path_factory.mktemp("dialogues")
    with ThreadPoolExecutor(store.AT_ONCE) as pool:
        yield {label: pool.submit(found, label, folder, EXAMPLES) for label in RELEASES}


@pytest.mark.parametrize("label", RELEASES)
def test_every_dialogue_is_right_streaming_and_full(label, searches):
    got = searches[label].result()
    assert got["states"]["spelled_markers"] == "applied"
    for form, what in got["wrong"].items():
        print(f"{form}: wrong ({what['way']}): {json.dumps(what['wrong'], ensure_ascii=False)}")
        print(json.dumps(what["case"], ensure_ascii=False, indent=1))
    assert not got["wrong"], f"{', '.join(got['wrong'])}: the smallest wrong dialogue is printed as a case file"
    assert sum(got["examples"].values()) >= EXAMPLES
    print(f"{label}: {got['examples']}")


def test_without_the_overlay_dialogues_of_every_format_are_wrong(tmp_path):
    got = found("vllm-0.33.0", tmp_path, 400, overlay=False)
    assert got["states"] == {}
    assert set(got["wrong"]) == set(got["examples"])
