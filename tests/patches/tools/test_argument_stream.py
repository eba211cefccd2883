"""argument_stream and argument_types: the records, and on real engines all types in all formats, streaming and full."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from engine_overlay.patches.tools import argument_stream
from engine_overlay.verify import releases
from tests.matrix import environment
from tests.patches import alone
from tests.patches.reasoning.gate import ask

_FIRST = ("qwen3", "qwen3_xml", "nemotron_v3", "mimo", "glm45", "glm47", "minimax_m2")
_MIDDLE = (*_FIRST, "seed_oss", "ling3", "deepseek_v32", "deepseek_v4")
FORMATS_OF = {
    "vllm-0.24.0": _FIRST,
    "vllm-0.28.0": _MIDDLE,
    "vllm-0.33.0": (*_MIDDLE, "step3p5", "deepseek_v41"),
    "aphrodite_engine-0.22.0": (*_FIRST, "seed_oss", "deepseek_v32", "deepseek_v4"),
    "aphrodite_engine-0.24.1": _MIDDLE,
}
"""Releases where a body of a target or a converter changes, with the markup formats of their parser engine.
The matrix runs the probes and the public cases on every release."""

RELEASES = tuple(FORMATS_OF)

STRIPS = ("vllm-0.24.0", "aphrodite_engine-0.22.0")
"""Stock strips the indentation of values there, which the overlay keeps as later releases do."""


def test_a_changed_body_is_refused(tmp_path):
    stub = "class ParserEngine:\n    def _compute_arg_delta(self, idx, raw_delta):\n        return None\n"
    v = ask(tmp_path, argument_stream, "0.33.0", {"parser.engine.parser_engine": stub})
    assert v.code == "drifted"
    assert v.reason.startswith("body of ParserEngine._compute_arg_delta is unknown (")


class Config:
    """The fields of a ParserEngineConfig that decide whether a format is ours."""

    stream_arg_deltas = True
    tool_args_json = False
    terminals = {"OPEN": ("<call>", "<tool>"), "PARAM_END": "</parameter>"}

    def __init__(self, converter, **fields):
        self.arg_converter = converter
        vars(self).update(fields)


def equals(raw: str, partial: bool) -> str:
    return json.dumps({"a": raw.removeprefix("<parameter=a>").removesuffix("</parameter>")})


def test_a_format_is_ours_when_its_converter_reads_what_we_read():
    config = Config(equals)
    assert argument_stream._syntax(config) is not None
    assert argument_stream._syntax(config) is argument_stream._syntax(config)
    assert argument_stream._syntax(Config(None)) is None
    assert argument_stream._syntax(Config(lambda raw, partial: raw)) is None
    assert argument_stream._syntax(Config(equals, tool_args_json=True)) is None
    assert argument_stream._syntax(Config(equals, stream_arg_deltas=False)) is None


@cache
def seen(label: str, *, overlay: bool) -> dict[str, Any]:
    out = releases.cache() / "results" / f"arguments-{label}-{'on' if overlay else 'off'}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    command = ["-m", "tests.patches.tools.on_engine", str(out)]
    environment.run(command, releases.fetch(releases.named(label)), overlay=overlay, check=True)
    return json.loads(out.read_text(encoding="utf-8"))


@pytest.mark.engine
@pytest.mark.parametrize("label", RELEASES)
def test_every_type_in_every_format_streaming_and_full(label):
    got = seen(label, overlay=True)
    assert got["states"]["argument_stream"] == got["states"]["argument_types"] == "applied"
    assert got["types"].keys() == set(FORMATS_OF[label])
    for name, found in got["types"].items():
        assert found == {"wrong": {}, "texts": 1}, name


@pytest.mark.engine
@pytest.mark.parametrize("label", RELEASES)
def test_healthy_arguments_are_the_bytes_of_stock(label):
    on = seen(label, overlay=True)["healthy"]
    for name, texts in on.items():
        assert len(set(texts.values())) == 1, name
        assert not next(iter(texts.values())).startswith("0 calls"), name
    if label not in STRIPS:
        assert on == seen(label, overlay=False)["healthy"]


@pytest.mark.engine
def test_without_the_patches_types_are_wrong():
    got = seen("vllm-0.33.0", overlay=False)
    assert got["states"] == {}
    assert len(got["types"]["qwen3"]["wrong"]["full"]) > 10


test_a_case_needs_it = alone.needed(
    "argument_stream",
    ("vllm-0.33.0", "018"),
)
