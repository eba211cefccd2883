"""What reads calls and arguments does work in proportion to their length, whatever a model writes, and however deep."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from engine_overlay.text.arguments import ArgumentStream
from engine_overlay.text.guided import GuidedCalls
from engine_overlay.text.json_arguments import JsonArguments
from engine_overlay.text.json_call import JsonCall
from engine_overlay.text.markup import DSML, EQUALS, NAMED, PAIRS, Trim
from engine_overlay.text.schema import Schema
from tests.conftest import EVERY
from tests.text.effort import growth

PROPERTIES = {
    "s": {"type": "string"},
    "i": {"type": "integer"},
    "o": {"type": "object"},
    "u": {"type": ["string", "array"]},
}
SCHEMA = Schema({"type": "object", "properties": PROPERTIES})
SYNTAXES = {
    "equals": replace(EQUALS, trim=Trim.NEWLINE),
    "edges": replace(EQUALS, trim=Trim.EDGES),
    "named": NAMED,
    "pairs": PAIRS,
    "dsml": DSML,
}


class Markup:
    def __init__(self, syntax):
        self._stream = ArgumentStream(syntax, SCHEMA)
        self.feed = self._stream.feed

    def finish(self):
        return self._stream.finish(True)


class Guided:
    def __init__(self, named=None):
        self._calls = GuidedCalls({"f"}, named, lambda _: SCHEMA)

    def feed(self, text):
        return "".join(said.arguments for said in self._calls.feed(text))

    def finish(self):
        return "".join(said.arguments for said in self._calls.feed("", last=True))


def opened(syntax, name):
    """(what opens an argument of this name, what closes it)"""
    begin, _, end = syntax.sample.replace('"a"', f'"{name}"').replace("=a>", f"={name}>").partition("%s")
    return begin.replace(">a<", f">{name}<"), end


def readers():
    """Name -> (a new reader, what it reads first, what it reads last); what is repeated comes between."""
    found = {}
    for name, syntax in SYNTAXES.items():
        for member in ("s", "o", "u") if name == "equals" else ("s",):
            found[f"{name}, in {member}"] = (lambda syntax=syntax: Markup(syntax), *opened(syntax, member))
    for name in ("equals", "pairs", "dsml"):
        syntax = SYNTAXES[name]
        found[f"{name}, between"] = (lambda syntax=syntax: Markup(syntax), "".join(opened(syntax, "i")), "")
    found["equals, first"] = (lambda: Markup(SYNTAXES["equals"]), "", "")
    for member in ("s", "i"):
        found[f"json, in {member}"] = (lambda: JsonArguments(SCHEMA), f'{{"{member}": "', '"}')
        found[f"json, for {member}"] = (lambda: JsonArguments(SCHEMA), f'{{"{member}": ', "}")
    found["json, key"] = (lambda: JsonArguments(SCHEMA), '{"', '": 1}')
    found["json, member"] = (lambda: JsonArguments(SCHEMA), "{", "}")
    found["json, in a string"] = (lambda: JsonArguments(SCHEMA), '"{', '"')
    found["json, behind"] = (lambda: JsonArguments(SCHEMA), "{}", "")
    for made, kind in ((lambda: JsonCall(lambda _: SCHEMA), "call"), (Guided, "guided")):
        begin, end = ("", "") if kind == "call" else ("[", "]")
        found[f"{kind}, first"] = (made, begin, end)
        found[f"{kind}, behind"] = (made, begin + '{"name": "f", "arguments": {}}', end)
        found[f"{kind}, early"] = (made, begin + '{"arguments": {"s": "', '"}, "name": "f"}' + end)
    found["call, member"] = (lambda: JsonCall(lambda _: SCHEMA), '{"name": "f", ', "}")
    for place, begin, end in (("name", '{"name"', "}"), ("key", '{"name": "f", "x', ": 1}"), ("other", '{"x"', "}")):
        found[f"call, {place}"] = (lambda: JsonCall(lambda _: SCHEMA), f'{begin}: "', f'"{end}')
    found["named tool"] = (lambda: Guided("f"), '{"s": "', '"}')
    return found


READERS = readers()
KINDS = {
    "letters": "x",
    "words": "it's a ",
    "blanks": " ",
    "lines": "\n",
    "angles": "<",
    "double quotes": '"',
    "single quotes": "'",
    "backslashes": "\\",
    "escaped quotes": '\\"',
    "half escapes": "\\u00",
    "brackets": "[",
    "objects": '{"a":',
    "closing brackets": "}]",
    "commas": ",",
    "digits": "1",
    "members": '"a": "b", ',
    "strings": '"a" "b" ',
    "calls": '{"name": "f", "arguments": {"s": "x"}}, ',
    "calls of nobody": '{"name": "g", "arguments": {"s": "x"}}, ',
    "fences": "```\n",
}
HALVES = {
    "half closers": "</param",
    "spaced": "< / ",
    "closers": "{closer}",
    "openers": "{opener}",
    "half openers": "{half}",
    "arguments": "{opener}1{closer}",
}
PER_DELTA = (5, 0)
"""Characters in a delta; 0 for all in one."""


def read(reader, filler, size, per_delta):
    made, begin, end = READERS[reader]
    text = (filler * (size // len(filler) + 1))[:size]
    now = made()
    said = [now.feed(begin)]
    width = per_delta or len(text)
    said += [now.feed(text[at : at + width]) for at in range(0, len(text), width)]
    said += [now.feed(end), now.finish()]
    return "".join(said)


def kinds_of(reader):
    """What is repeated for this reader: the general kinds, and for markup those of its own tags."""
    yield from KINDS.items()
    syntax = SYNTAXES.get(reader.partition(",")[0])
    if syntax is not None:
        begin, end = opened(syntax, "q")
        half = begin.partition("q")[0]
        yield from ((name, text.format(opener=begin, closer=end, half=half)) for name, text in HALVES.items())


@pytest.mark.parametrize("per_delta", PER_DELTA)
@pytest.mark.parametrize("reader", READERS)
def test_work_is_in_proportion_to_the_text(reader, per_delta):
    found = {}
    for number, (kind, filler) in enumerate(kinds_of(reader)):
        if not EVERY and number % 2 == (per_delta == 0):
            # Half of them in small deltas, the others in one.
            continue
        # An opening tag is looked for in 256 characters, and brackets count to 200: shorter texts say nothing.
        markup = reader.partition(",")[0] in SYNTAXES
        size = 201 * len(filler) if filler in ("[", '{"a":') else 600 if markup else 200
        found[kind] = round(growth(lambda n, filler=filler: read(reader, filler, n, per_delta), size), 1)
    assert not {kind: times for kind, times in found.items() if times > 6}


DEPTHS = (100, 990, 5_000)
DEEP = {"arrays": ("[", "]"), "objects": ('{"a":', "}")}


@pytest.mark.parametrize("reader", READERS)
def test_no_depth_is_too_deep(reader):
    for opening, closing in DEEP.values():
        for depth in (150, 990, 3_000):
            text = opening * depth + "1" + closing * (depth if depth > 990 else 0)
            said = {read(reader, text, len(text) - 1, width) for width in (0, 97)}
            assert len(said) == 1
            assert all(is_json(one) for one in said if one)


@pytest.mark.parametrize("reader", ["equals, in o", "pairs, between", "json, for i", "call, member", "guided, early"])
def test_not_even_100_000_brackets_are(reader):
    said = read(reader, "[", 99_999, 0)
    assert not said or is_json(said)


def is_json(text):
    """Whether ``text`` is JSON, however deep: what may come next is told by the last token and the open brackets."""
    may, stack = "v", []
    for token in _TOKEN.findall(text):
        kind = "s" if token[0] == '"' else token if token in "[]{},:" else "v"
        if kind in "sv[{" and may in ("v", "v]"):
            stack += kind if kind in "[{" else ""
            may = {"[": "v]", "{": "s}"}.get(kind, ",")
        elif kind == "s" and may in ("s", "s}"):
            may = ":"
        elif kind == ":" and may == ":":
            may = "v"
        elif kind == "," and may == "," and stack:
            may = "v" if stack[-1] == "[" else "s"
        elif kind in "]}" and stack and stack[-1] + kind in ("[]", "{}") and (may == "," or kind in may):
            stack.pop()
            may = ","
        else:
            return False
    return may == "," and not stack and not _TOKEN.sub("", text).strip()


_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},:]|-?[0-9][0-9.eE+-]*|true|false|null')


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_value_that_is_nested_too_deeply_stands_as_it_was_written(depth):
    for name, syntax in SYNTAXES.items():
        for opening, closing in DEEP.values():
            value = opening * depth + "1" + closing * depth
            begin, end = opened(syntax, "o")
            said = Markup(syntax)
            assert said.feed(begin + value + end) + said.finish() == f'{{"o": {json_of(value, depth)}}}', name
            # Nothing is lost of what is no JSON either.
            begin, end = opened(syntax, "o")
            said = Markup(syntax)
            cut_off = opening * depth
            assert said.feed(begin + cut_off + end) + said.finish() == f'{{"o": {json.dumps(cut_off)}}}'
    value = '{"a":' * depth + "1" + "}" * depth
    assert JsonArguments(SCHEMA).whole(f'{{"o": {value}}}') == f'{{"o": {value}}}'
    assert JsonArguments(SCHEMA).whole(f'{{"s": {value}, "i": "1"}}').endswith(', "i": 1}')


def json_of(value, depth):
    return json.dumps(json.loads(value)) if depth <= 100 else value


@pytest.mark.parametrize("depth", DEPTHS)
def test_schemas_that_refer_to_each_other_are_followed_by_no_stack(depth):
    chain = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(depth)}
    nested = {"type": "object", "properties": {"s": {"type": "string"}}}
    for _ in range(depth):
        nested = {"allOf": [nested]}
    for root in ({"$defs": chain, "properties": {"s": {"$ref": "#/$defs/d0"}}}, nested):
        said = JsonArguments(Schema(root)).whole('{"s": "x"}')
        assert json.loads(said) == {"s": "x"}
    shared = Schema({"$defs": {"t": {"items": {"$ref": "#/$defs/t"}}}, "properties": {"t": {"$ref": "#/$defs/t"}}})
    text = '{"t": ' + "[" * depth + "]" * depth + "}"
    assert JsonArguments(shared).whole(text) == text
