"""DSML as DeepSeek's models write it, well and badly, and what a client must get: cases as in tests/cases.

Nobody's tokenizer has whole markers of DSML as tokens: ``｜DSML｜`` is one, the rest is spelled around it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

BAR = "｜DSML｜"
WEATHER = {
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
}
WRITE = {
    "name": "write_file",
    "parameters": {
        "type": "object",
        "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
    },
}
PING = {"name": "ping", "parameters": {"type": "object", "properties": {}}}
ATOMIC = ("<think>", "</think>", BAR)

Call = tuple[str, dict[str, Any]]


def opened(name: str) -> str:
    return f"<{BAR}{name}>"


def closed(name: str) -> str:
    return f"</{BAR}{name}>"


def value(name: str, raw: str, string: str = "true") -> str:
    return f'<{BAR}parameter name="{name}" string="{string}">{raw}</{BAR}parameter>\n'


def invoke(body: str, name: str = "get_weather") -> str:
    return f'<{BAR}invoke name="{name}">\n{body}{closed("invoke")}\n'


def block(body: str, wrapper: str = "tool_calls") -> str:
    return f"{opened(wrapper)}\n{body}{closed(wrapper)}"


def ulm(city: str = "Ulm", **more: Any) -> Call:
    return "get_weather", {"city": city, **more}


ULM, BONN = invoke(value("city", "Ulm")), invoke(value("city", "Bonn") + value("days", "2", "false"))
BOTH = [ulm(), ulm("Bonn", days=2)]
HEAD = f'<{BAR}invoke name="get_weather">\n'
LEFT_OVER = f"{closed('parameter')}\n{closed('invoke')}\n{closed('tool_calls')}"
NESTED = f'Use <{BAR}invoke name="write_file">x{closed("invoke")} so'


def pieces_of(text: str, atomic: Iterable[str]) -> list[str]:
    """The tokens: the ``atomic`` ones, words, and every other character."""
    markers = "|".join(map(re.escape, atomic))
    return re.findall(rf"{markers}| ?[A-Za-z_]+|\d|\s+|</|.", text, re.DOTALL)


def case(
    name: str, text: str, content: str = "", calls: Iterable[Call] = (), *, think: bool = True, **more: Any
) -> dict[str, Any]:
    """``text`` stands behind the end of the reasoning "Ok.", unless ``think`` is False."""
    calls = list(calls)
    atomic = [marker for marker in ATOMIC if marker not in more.pop("spelled", ())]
    text = f"Ok.</think>\n\n{text}" if think else text
    finish = more.pop("finish", "tool_calls" if calls else "stop")
    expect = {
        "reasoning": more.pop("reasoning", "Ok."),
        "content": content,
        "tool_calls": [{"name": called, "arguments": arguments} for called, arguments in calls],
        "finish_reason": finish,
    }
    made = {
        "id": name,
        "kind": "DSML",
        "reasoning_parser": "deepseek_v4",
        "tool_parser": "deepseek_v4",
        "tools": [WEATHER],
        "prompt_pieces": ["<｜User｜>", "hi", "<think>"],
        "special": ["<｜User｜>", "<｜end▁of▁sentence｜>"],
        "chat_template_kwargs": {"thinking": True},
        "atomic": atomic,
        "text": text,
        "token_pieces": pieces_of(text, atomic),
        "deltas": "each",
        "expect": expect,
    }
    if finish == "length":
        made["engine_finish"] = "length"
    return made | more


def said(name: str, text: str, **more: Any) -> dict[str, Any]:
    """An answer without a call, of which nothing is lost."""
    return case(name, text, text, **more)


V32 = {"tool_parser": "deepseek_v32", "reasoning_parser": None, "think": False, "reasoning": ""}

MALFORMED = [
    case("left-over closers at the end", f"Done.\n{LEFT_OVER}", "Done."),
    case("the end of a block alone", f"Hello.{closed('tool_calls')}", "Hello."),
    case("left-over closer in the middle", f"One.{closed('parameter')}\n\nTwo.", "One.\n\nTwo."),
    case("left-over closer behind JSON", f'{{"a": 1}}{closed("tool_calls")}', '{"a": 1}'),
    case("V3.2, left-over closer", f"Done.\n{closed('function_calls')}", "Done.", **V32),
    case("V3.2's wrapper in V4", block(ULM, "function_calls"), "", [ulm()]),
    case("V4's wrapper in V3.2", block(ULM), "", [ulm()], **V32),
    case("a wrapper in the singular", block(ULM, "toolcall"), "", [ulm()]),
    case("a value closed twice", block(ULM.replace("</", f"{closed('parameter')}\n</", 1)), "", [ulm()]),
]
"""Wrong on every release without the overlay."""

WRAPPERS = [
    case("no wrapper", ULM, "", [ulm()]),
    case("no wrapper, twice", ULM + BONN, "", BOTH),
    case("no wrapper, but its end", ULM + closed("tool_calls"), "", [ulm()]),
    case("no wrapper, behind text", f"I look.\n\n{ULM}", "I look.", [ulm()]),
    case("no wrapper, no arguments", invoke("", "ping"), "", [("ping", {})], tools=[PING]),
    case("no wrapper, held back", ULM, "", [ulm()], holdback=7),
    case("no wrapper, spelled", ULM + closed("tool_calls"), "", [ulm()], spelled=(BAR, "</think>")),
    case("no wrapper, required", ULM, "", [ulm()], tool_choice="required"),
    case("no wrapper, none", f"Text.\n{ULM}{closed('tool_calls')}", "Text.", tool_choice="none"),
    case("V3.2, no wrapper", ULM + closed("function_calls"), "", [ulm()], **V32),
    case("V3.2, no wrapper, thinking", ULM, "", [ulm()], tool_parser="deepseek_v32", reasoning_parser="deepseek_v3"),
    case("toolcalls", block(ULM, "toolcalls"), "", [ulm()]),
    case("toolcalls with the right end", f"{opened('toolcalls')}\n{ULM}{closed('tool_calls')}", "", [ulm()]),
    case("toolcalls in the reasoning", f"Ok.\n{block(ULM, 'toolcalls')}", "", [ulm()], think=False),
    case("tool", block(ULM, "tool"), "", [ulm()]),
    case("left-over closers behind a block", f"{block(ULM)}\n{LEFT_OVER}", "", [ulm()]),
]
"""Wrong without the overlay on some releases."""

CALLS = [
    case("V4", block(ULM), "", [ulm()]),
    case("V3.2", block(ULM, "function_calls"), "", [ulm()], **V32),
    case("two", block(ULM + BONN), "", BOTH),
    case("spelled", block(ULM), "", [ulm()], spelled=(BAR,)),
    case("held back", block(BONN), "", BOTH[1:], holdback=9),
    case("in the reasoning", f"Ok.\n{block(ULM)}", "", [ulm()], think=False),
    case("blank lines", f"{opened('tool_calls')}\n\n\n{ULM}\n\n{closed('tool_calls')}", "", [ulm()]),
    case("left-over closers between calls", block(f"{ULM}{closed('parameter')}\n{BONN}{closed('invoke')}\n"), "", BOTH),
    case("no end of the call", block(HEAD + value("city", "Ulm")), "", [ulm()]),
    case("no end of the first call", block(f"{HEAD}{value('city', 'Ulm')}{BONN}"), "", BOTH),
    case("no end of the block", f"{opened('tool_calls')}\n{ULM}", "", [ulm()]),
    case("a block in a block", f"{opened('tool_calls')}\n{ULM}{block(BONN)}", "", BOTH),
    case("two blocks", f"{block(ULM)}\n{block(BONN)}", "", BOTH),
    case("no end of a value", block(ULM.replace(closed("parameter"), "")), "", [ulm()]),
    case("no string attribute", block(BONN.replace(' string="true"', "").replace(' string="false"', "")), "", BOTH[1:]),
    case("other types", block(invoke(value("city", "12", "false") + value("days", "3"))), "", [ulm("12", days=3)]),
    case("none", f"Text.\n{block(ULM)}", "Text.", tool_choice="none"),
    case("cut in a name", f'{opened("tool_calls")}\n<{BAR}invoke name="get_we', finish="length"),
    case(
        "a call in a value",
        block(invoke(value("path", "a") + value("content", NESTED), "write_file")),
        "",
        [("write_file", {"path": "a", "content": NESTED})],
        tools=[WRITE],
    ),
    case(
        "not thinking",
        block(ULM),
        "",
        [ulm()],
        think=False,
        reasoning="",
        prompt_pieces=["<｜User｜>", "hi", "</think>"],
        chat_template_kwargs={"thinking": False},
    ),
]

TEXT = [
    said("opener in inline code", f"Use `{opened('tool_calls')}` and `{HEAD.strip()}` so."),
    said("closers in inline code", f"End with `{closed('invoke')}` and `{closed('tool_calls')}`.\nDone."),
    said("closer in a sentence", f"The tag {closed('invoke')} ends a call."),
    said("opener in a sentence", f"Write {HEAD.strip()} to call it."),
    said("closer in quotes", f'The log says "{closed("tool_calls")}" at its end.'),
    said("fence", f"So:\n```\n{block(ULM)}\n```\nfine."),
    said("fence without a wrapper", f"So:\n```xml\n{ULM}```\nfine."),
    said("undeclared tool", block(ULM.replace("get_weather", "rm"))),
    said("undeclared tool without a wrapper", ULM.replace("get_weather", "rm") + "So."),
    said("no tools", block(ULM), tools=[]),
    said("cut in a closer", f"Hello.</{BAR}tool", finish="length"),
    case(
        "no wrapper in the reasoning", f"Ok.\n{ULM}so</think>\n\nHi.", "Hi.", think=False, reasoning=f"Ok.\n{ULM}so"
    ),
]

ALL = [*MALFORMED, *WRAPPERS, *CALLS, *TEXT]
