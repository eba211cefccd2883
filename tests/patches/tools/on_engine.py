"""Types of all kinds in all formats, and arguments as stock gives them, on the engine that this process can import.

    python -m tests.patches.tools.on_engine FILE

Writes JSON: the states of the patches; for each format the types that came out wrong, by way (tokens per delta, or
full), and how many different texts of JSON all ways gave; and the text that each way gives for healthy arguments.
test_argument_stream judges it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine_overlay.verify.replay import engine_name
from engine_overlay.verify.serving_code import ServingCode
from tests.text.schema_cases import CASES, DEFS

WAYS = (1, 3, 7)


def qwen3(values: list[tuple[str, str, bool]]) -> list[str]:
    body = "".join(f"<parameter={name}>\n{raw}\n</parameter>\n" for name, raw, _ in values)
    return ["</think>", "\n\n", "<tool_call>", f"\n<function=f>\n{body}</function>\n", "</tool_call>"]


def glm47(values: list[tuple[str, str, bool]]) -> list[str]:
    body = "".join(f"<arg_key>{name}</arg_key>\n<arg_value>{raw}</arg_value>\n" for name, raw, _ in values)
    return ["</think>", "<tool_call>", f"f\n{body}", "</tool_call>"]


def minimax_m2(values: list[tuple[str, str, bool]]) -> list[str]:
    body = "".join(f'<parameter name="{name}">{raw}</parameter>\n' for name, raw, _ in values)
    return ["</think>", "\n", "<minimax:tool_call>", f'\n<invoke name="f">\n{body}</invoke>\n', "</minimax:tool_call>"]


def deepseek_v4(values: list[tuple[str, str, bool]]) -> list[str]:
    body = "".join(
        f'<｜DSML｜parameter name="{name}" string="{str(text).lower()}">{raw}</｜DSML｜parameter>\n'
        for name, raw, text in values
    )
    body = f'\n<｜DSML｜invoke name="f">\n{body}</｜DSML｜invoke>\n'
    return ["</think>", "<｜DSML｜tool_calls>", body, "</｜DSML｜tool_calls>"]


FORMATS = {
    "qwen3": ("qwen3", "qwen3_coder", qwen3),
    "glm47": ("glm45", "glm47", glm47),
    "minimax_m2": ("minimax_m2", "minimax_m2", minimax_m2),
    "deepseek_v4": ("deepseek_v4", "deepseek_v4", deepseek_v4),
}


def case_of(name: str, values: list[tuple[str, str, bool]], properties: dict[str, Any]) -> dict[str, Any]:
    """A public case with one call; its body in pieces of three characters."""
    reasoning, tool, write = FORMATS[name]
    parts = write(values)
    atomic = [parts[0], parts[-3] if len(parts) == 5 else parts[1], parts[-1]]
    pieces = [bit for part in parts for bit in ([part] if part in atomic else chunks(part))]
    schema = {"type": "object", "properties": properties, "$defs": DEFS}
    return {
        "id": name,
        "reasoning_parser": reasoning,
        "tool_parser": tool,
        "tools": [{"name": "f", "parameters": schema}],
        "atomic": atomic,
        "prompt_pieces": ["<think>"],
        "token_pieces": pieces,
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
        try:
            code._manager.get_tool_parser(FORMATS[form][1], True, "model")
        except (KeyError, TypeError):
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
