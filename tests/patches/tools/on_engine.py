"""Types of all kinds in all formats, and arguments as stock gives them, on the engine that this process can import.

    python -m tests.patches.tools.on_engine FILE

Writes JSON: the states of the patches; for each format the types that came out wrong, by way (tokens per delta, or
full), and how many different texts of JSON all ways gave; and the text that each way gives for healthy arguments.
test_argument_stream judges it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine_overlay.verify.replay import engine_name
from engine_overlay.verify.serving_code import ServingCode
from tests.text.schema_cases import CASES, DEFS

WAYS = (1, 3, 7)


Values = list[tuple[str, str, bool]]
"""(name, what the model writes, whether it is meant as a string) of each argument."""


def xml(values: Values) -> str:
    return "\n<function=f>\n" + "".join(f"<parameter={n}>\n{raw}\n</parameter>\n" for n, raw, _ in values) + _XML_END


def compact(values: Values) -> str:
    """No newlines around values, which belong to them where the newest release reads this format."""
    return "\n<function=f>\n" + "".join(f"<parameter={n}>{raw}</parameter>\n" for n, raw, _ in values) + _XML_END


def glm(values: Values) -> str:
    return "f\n" + "".join(f"<arg_key>{n}</arg_key>\n<arg_value>{raw}</arg_value>\n" for n, raw, _ in values)


def minimax(values: Values) -> str:
    body = "".join(f'<parameter name="{n}">{raw}</parameter>\n' for n, raw, _ in values)
    return f'\n<invoke name="f">\n{body}</invoke>\n'


def dsml(values: Values, gap: str = "") -> str:
    body = "".join(
        f'<｜DSML｜{gap}parameter name="{n}" string="{str(text).lower()}">{raw}</｜DSML｜{gap}parameter>\n'
        for n, raw, text in values
    )
    return f'\n<｜DSML｜{gap}invoke name="f">\n{body}</｜DSML｜{gap}invoke>\n'


def dsml_41(values: Values) -> str:
    return dsml(values, gap=" ")


_XML_END = "</function>\n"


@dataclass(frozen=True)
class Format:
    """The parsers of a format, its markers, and how it writes the inside of a call of ``f``."""

    reasoning_parser: str | None
    tool_parser: str
    write: Callable[[Values], str]
    opener: str = "<tool_call>"
    closer: str = "</tool_call>"
    end: str = "</think>"


FORMATS = {
    "qwen3": Format("qwen3", "qwen3_coder", xml),
    "qwen3_xml": Format("qwen3", "qwen3_xml", xml),
    "nemotron_v3": Format("nemotron_v3", "qwen3_coder", xml),
    "step3p5": Format("step3p5", "step3p5", xml),
    "mimo": Format("mimo", "mimo", compact),
    "seed_oss": Format("seed_oss", "seed_oss", xml, "<seed:tool_call>", "</seed:tool_call>", "</seed:think>"),
    "glm45": Format("glm45", "glm45", glm),
    "glm47": Format("glm45", "glm47", glm),
    "ling3": Format("ling3", "ling3", glm),
    "minimax_m2": Format("minimax_m2", "minimax_m2", minimax, "<minimax:tool_call>", "</minimax:tool_call>"),
    "deepseek_v32": Format(None, "deepseek_v32", dsml, "<｜DSML｜function_calls>", "</｜DSML｜function_calls>", ""),
    "deepseek_v4": Format("deepseek_v4", "deepseek_v4", dsml, "<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"),
    "deepseek_v41": Format("deepseek_v41", "deepseek_v41", dsml_41, "<｜DSML｜ calls>", "</｜DSML｜ calls>"),
}
"""Every markup format whose converter the overlay knows."""


def has(code: ServingCode, form: Format) -> bool:
    """Whether the release builds both parsers of the format on its parser engine."""
    try:
        found = [code._manager.get_tool_parser(form.tool_parser, True, "model")]
        if form.reasoning_parser:
            found.append(code._manager.get_reasoning_parser(form.reasoning_parser))
    except (KeyError, TypeError):
        return False
    return all(hasattr(parser, "_parser_engine_cls") for parser in found)


def case_of(name: str, values: Values, properties: dict[str, Any]) -> dict[str, Any]:
    """A public case with one call; its body in pieces of three characters."""
    form = FORMATS[name]
    schema = {"type": "object", "properties": properties, "$defs": DEFS}
    pieces = [form.end, form.opener, *chunks(form.write(values)), form.closer]
    return {
        "id": name,
        "reasoning_parser": form.reasoning_parser,
        "tool_parser": form.tool_parser,
        "tools": [{"name": "f", "parameters": schema}],
        "atomic": [marker for marker in (form.end, form.opener, form.closer) if marker],
        "prompt_pieces": ["<think>"],
        # As its template is asked to open the reasoning; other formats do not look at it.
        "chat_template_kwargs": {"thinking": True},
        "token_pieces": [piece for piece in pieces if piece],
        "deltas": "each",
    }


def chunks(text: str) -> Iterator[str]:
    for at in range(0, len(text), 3):
        yield text[at : at + 3]


def answers(code: ServingCode, case: dict[str, Any]) -> dict[str, str]:
    """Way -> the arguments of the one call, as text; what went wrong instead when there is not one call."""
    found = {}
    total = len(case["token_pieces"])
    ways = {str(size): [min(size, total - at) for at in range(0, total, size)] for size in (*WAYS, total)}
    for way, groups in (*ways.items(), ("full", None)):
        answer = code.full(case) if groups is None else code.stream(case, groups)
        calls = answer.calls or {}
        found[way] = calls[0][1] if len(calls) == 1 else f"{len(calls)} calls, content {answer.content!r}"
    return found


def types(code: ServingCode, name: str) -> dict[str, Any]:
    keys = {f"p{n}": case for n, case in enumerate(CASES)}
    values = [(key, CASES[case][1], isinstance(CASES[case][2], str)) for key, case in keys.items()]
    given = answers(code, case_of(name, values, {key: CASES[case][0] for key, case in keys.items()}))
    wrong: dict[str, Any] = {}
    for way, text in given.items():
        try:
            got = json.loads(text)
        except ValueError:
            wrong[way] = f"not JSON: {text[:300]}"
            continue
        bad = {
            case: got.get(key, "nothing")
            for key, case in keys.items()
            if json.dumps(got.get(key, "nothing"), sort_keys=True) != json.dumps(CASES[case][2], sort_keys=True)
        }
        if bad:
            wrong[way] = bad
    return {"wrong": wrong, "texts": len(set(given.values()))}


HEALTHY = [
    "plain",
    "two\nlines",
    'quotes " and \\ and \u00e9\U0001f338',
    "<p>x < 3 && y > 2</p>",
    "    indented",
    "42",
    "null",
]


def main(out: str) -> None:
    name = engine_name()
    code = ServingCode(name)
    result: dict[str, Any] = {"types": {}, "healthy": {}, "states": {}}
    for form in FORMATS:
        if not has(code, FORMATS[form]):
            continue
        result["types"][form] = types(code, form)
        values = [(f"s{n}", text, True) for n, text in enumerate(HEALTHY)]
        case = case_of(form, values, {key: {"type": "string"} for key, _, _ in values})
        result["healthy"][form] = answers(code, case)
    if "engine_overlay" in sys.modules:
        from engine_overlay import status

        result["states"] = {patch["id"]: patch["state"] for patch in status.report()["patches"]}
    Path(out).write_text(json.dumps(result, ensure_ascii=False, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
