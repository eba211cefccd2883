"""The stream of arguments: what closes a value, what is text, that nothing is lost, and that no cut counts."""

from __future__ import annotations

import json
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_overlay.text import markup
from engine_overlay.text.arguments import ArgumentStream
from engine_overlay.text.markup import Trim, syntax_of
from engine_overlay.text.schema import Schema

DSML = "</｜DSML｜parameter>"


def verbatim(raw, partial):
    return json.dumps({"a": raw.partition(">")[2].rpartition("</")[0]})


def verbatim_value(raw):
    value = json.loads(verbatim(raw, False))["a"]
    return value.removeprefix("\n").removesuffix("\n")


EQUALS, NAMED, PAIRS = markup.EQUALS, markup.NAMED, markup.PAIRS
LINES = syntax_of((), lambda raw, partial: json.dumps({"a": verbatim_value(raw)}))

TOOL = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "content": {"type": "string"},
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
}


def whole(raw, syntax=LINES, tool=TOOL, complete=True):
    stream = ArgumentStream(syntax, Schema(tool) if tool is not None else None)
    text = stream.feed(raw) + stream.finish(complete)
    assert stream.json == text
    assert stream.feed("x") == stream.finish(True) == ""
    return text


def pieces(raw, cuts, syntax=LINES, tool=TOOL, complete=True):
    stream = ArgumentStream(syntax, Schema(tool) if tool is not None else None)
    return "".join([stream.feed(raw[a:b]) for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]) + (
        stream.finish(complete)
    )


def parameter(name, value):
    return f"<parameter={name}>\n{value}\n</parameter>\n"


def test_the_syntax_is_found_by_the_engines_own_converter():
    assert LINES is not None
    assert LINES.trim is Trim.NEWLINE
    assert syntax_of((), verbatim).trim is Trim.NOTHING
    # A release that strips all white space keeps the indentation of a value that the template put on its own lines.
    strips = syntax_of((), lambda raw, p: json.dumps({"a": json.loads(verbatim(raw, p))["a"].strip()}))
    assert strips.trim is Trim.EDGES


@pytest.mark.parametrize(
    ("raw", "value"), [("\n  a\n", "  a"), ("  a \n", "a"), (" \n ", ""), ("a b ", "a b"), ("\n\n", "")]
)
@pytest.mark.parametrize("cut", [1, 2, 9])
def test_white_space_around_a_value_on_one_line_is_the_templates_where_a_release_strips_it(raw, value, cut):
    strips = syntax_of((), lambda raw, p: json.dumps({"a": json.loads(verbatim(raw, p))["a"].strip()}))
    stream = ArgumentStream(strips, None)
    text = f"<parameter=a>{raw}</parameter>"
    out = "".join(stream.feed(text[at : at + cut]) for at in range(0, len(text), cut)) + stream.finish(True)
    assert json.loads(out) == {"a": value}


def test_what_no_syntax_reads_is_left_alone():
    assert syntax_of((), lambda raw, p: json.dumps({"a": "something else"})) is None
    assert syntax_of((), lambda raw, p: "no JSON") is None
    assert syntax_of((), lambda raw, p: json.dumps(["a"])) is None
    reads_dsml = syntax_of((DSML,), lambda raw, p: verbatim(raw, p) if "DSML" in raw else "{}")
    assert reads_dsml.says_string


HEALTHY = {
    "one": (parameter("city", "Ulm"), {"city": "Ulm"}),
    "two": (parameter("city", "Ulm") + parameter("days", "3"), {"city": "Ulm", "days": 3}),
    "one line": ("<parameter=city>Rio</parameter><parameter=days>4</parameter>", {"city": "Rio", "days": 4}),
    "white space": (parameter("content", "    return 1\n\n"), {"content": "    return 1\n\n"}),
    "empty": ("<parameter=city>\n\n</parameter>", {"city": ""}),
    "nothing at all": ("<parameter=city></parameter>", {"city": ""}),
    "none": ("\n", {}),
    "not declared": (parameter("unit", "5"), {"unit": "5"}),
    "array": (parameter("tags", '["a", "b"]'), {"tags": ["a", "b"]}),
}


@pytest.mark.parametrize("case", HEALTHY)
def test_healthy_arguments(case):
    raw, wanted = HEALTHY[case]
    assert whole(raw) == json.dumps(wanted, ensure_ascii=False)


ODD = {
    "missing closer at the end": (
        "<parameter=days>\n3\n</parameter>\n<parameter=city>\nUlm\n",
        '{"days": 3, "city": "Ulm"}',
    ),
    "missing closer before the next": (
        "<parameter=city>\nUlm\n<parameter=days>\n3\n</parameter>",
        '{"city": "Ulm", "days": 3}',
    ),
    "the same in one line": ("<parameter=city>Ulm<parameter=days>3</parameter>", '{"city": "Ulm", "days": 3}'),
    "a closer that is quoted": (parameter("content", "a </parameter> b"), '{"content": "a </parameter> b"}'),
    "a closer at the end of a line": (parameter("content", "a </parameter>\nb"), '{"content": "a </parameter>\\nb"}'),
    "a closer with spaces": ("<parameter=city>Ulm< / parameter >", '{"city": "Ulm"}'),
    "an opener in a line": (
        parameter("content", "Use <parameter=city> here"),
        '{"content": "Use <parameter=city> here"}',
    ),
    "an opener of no parameter": (
        parameter("content", "x\n<parameter=demo>\n"),
        '{"content": "x\\n<parameter=demo>\\n"}',
    ),
    "an opener without an end": (
        "<parameter=days>\n2\n</parameter>\n<parameter=\nTromso; A=$B\n</parameter>\n",
        '{"days": 2}',
    ),
    "an opener without its bracket": ("<parameter=city\nUlm\n</parameter>\n", '{"city": "Ulm"}'),
    "tags of other languages": (parameter("content", "<p>1<2 && 3>2</p><"), '{"content": "<p>1<2 && 3>2</p><"}'),
    "JSON instead of markup": ('\n{"city": "Ulm", "days": "3"}\n', '{"city": "Ulm", "days": 3}'),
    "a name twice": (parameter("city", "a") + parameter("city", "b"), '{"city": "a", "city": "b"}'),
}


@pytest.mark.parametrize("case", ODD)
def test_odd_arguments(case):
    raw, wanted = ODD[case]
    assert whole(raw) == wanted
    json.loads(wanted)


CUT_OFF = {
    "<parameter=city>\nBer": '{"city": "Ber"}',
    "<parameter=city>\nBergen\n</para": '{"city": "Bergen"}',
    "<parameter=city>\nBergen\n</parameter>": '{"city": "Bergen"}',
    "<parameter=city>\nBergen\n</parameter>\n<param": '{"city": "Bergen"}',
    "<parameter=city>\nBergen\n</parameter>\n<parameter=da": '{"city": "Bergen"}',
    "<parameter=city>\nBergen\n<parameter=da": '{"city": "Bergen"}',
    "<parameter=days>\n3": '{"days": 3}',
    '<parameter=tags>\n["a", ': '{"tags": "[\\"a\\", "}',
    "<parameter=": "{}",
    "": "{}",
}


@pytest.mark.parametrize("raw", CUT_OFF)
def test_arguments_that_are_cut_off_by_length(raw):
    assert whole(raw, complete=False) == CUT_OFF[raw]


@pytest.mark.parametrize("rest", ["<", "</", "</func", "</function"])
def test_a_closed_value_stays_closed_when_the_end_of_the_call_is_cut_off(rest):
    raw = parameter("days", "3") + rest
    for cut in range(len(raw)):
        assert pieces(raw, [cut], complete=False) == '{"days": 3}'


def test_a_beginning_of_a_tag_is_text_when_the_call_was_closed():
    assert whole("<parameter=city>\na </para") == '{"city": "a </para"}'
    assert whole("<parameter=city>\na\n</parameter>\n<p") == '{"city": "a\\n</parameter>\\n<p"}'


def test_other_formats():
    wanted = '{"city": "Ulm", "days": 3}'
    named = "<parameter name=\"city\">Ulm</parameter>\n<parameter name='days'>3</parameter>\n"
    assert whole(named, NAMED) == whole(named.replace("'", ""), NAMED) == wanted
    pairs = "<arg_key>city</arg_key>\n<arg_value>Ulm</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n"
    assert whole(pairs, PAIRS) == wanted
    assert whole(pairs.replace("Ulm</arg_value>", "Ulm"), PAIRS) == wanted
    quoted = "<arg_key>city</arg_key><arg_value>a </arg_value> b</arg_value>"
    assert whole(quoted, PAIRS) == '{"city": "a </arg_value> b"}'
    assert whole("<arg_key>city</arg_key><arg_value>\na\n</arg_value>", PAIRS) == '{"city": "\\na\\n"}'


def dsml(**values):
    return "".join(
        f'<｜DSML｜parameter name="{name}" string="{str(isinstance(value, str)).lower()}">'
        f"{value if isinstance(value, str) else json.dumps(value)}{DSML}\n"
        for name, value in values.items()
    )


def test_a_format_that_says_what_is_a_string():
    syntax = markup._dsml("<｜DSML｜parameter", DSML)
    values = {"city": "1", "days": 3, "other": "5", "more": [1], "bare": 5}
    assert json.loads(whole(dsml(**values), syntax)) == values
    assert json.loads(whole(dsml(**values), syntax, None)) == values
    assert whole('<｜DSML｜parameter name="city">x</｜DSML｜parameter>', syntax) == '{"city": "x"}'


def test_dsml_may_close_a_value_twice():
    syntax = markup._dsml("<｜DSML｜parameter", DSML)
    city, days = '<｜DSML｜parameter name="city" string="true">', '<｜DSML｜parameter name="days" string="false">'
    wanted = '{"city": "Ulm", "days": 3}'
    for again in (DSML, f"\n{DSML}", f"\n{DSML}\n{DSML}"):
        assert whole(f"{city}Ulm{DSML}{again}\n{days}3{DSML}{again}\n", syntax) == wanted
    # Text goes on behind it, or it closes what the value opened itself.
    for value in (f"a{DSML}{DSML} b", f"{city}a{DSML}"):
        assert json.loads(whole(f"{city}{value}{DSML}", syntax)) == {"city": value}
    # Elsewhere the first of two may be the value's own.
    twice = '<parameter name="city">Ulm</parameter></parameter>'
    assert whole(twice, NAMED) == '{"city": "Ulm</parameter>"}'


def test_a_value_that_is_cut_inside_a_character_of_its_closer():
    syntax = markup._dsml("<｜DSML｜parameter", DSML)
    head = '<｜DSML｜parameter name="city" string="true">'
    for text in (f"{head}Ulm{DSML}\n<\ufffd", f"{head}Ulm</｜DSML\ufffd", f"{head}Ulm</\ufffd"):
        stream = ArgumentStream(syntax, None)
        assert stream.feed(text) + stream.finish(False) == '{"city": "Ulm"}'


@pytest.mark.parametrize("wrapper", ["arguments", "input"])
def test_a_wrapper_around_all_arguments_is_taken_off(wrapper):
    syntax = markup._dsml("<｜DSML｜parameter", DSML)
    inner = {"city": "Ulm", "days": "3"}
    for value in (inner, json.dumps(inner)):
        assert whole(dsml(**{wrapper: value}), syntax) == '{"city": "Ulm", "days": 3}'
    assert json.loads(whole(dsml(**{wrapper: {"other": 1}}), syntax)) == {wrapper: {"other": 1}}
    assert json.loads(whole(dsml(**{wrapper: inner, "city": "x"}), syntax)) == {wrapper: inner, "city": "x"}
    assert json.loads(whole(dsml(city="x", **{wrapper: inner}), syntax)) == {"city": "x", wrapper: inner}


def test_without_a_schema_every_value_is_a_string_and_every_opener_counts():
    assert whole("<parameter=a>1<parameter=b>2</parameter>", tool=None) == '{"a": "1", "b": "2"}'


def test_strings_are_passed_on_before_they_end():
    stream = ArgumentStream(LINES, Schema(TOOL))
    assert stream.feed("<parameter=city>\nBer") == '{"city": "Ber'
    assert stream.feed("gen\n") == "gen"
    assert stream.feed("</para") == ""
    assert stream.feed("de") == "\\n</parade"
    assert stream.feed("\n</parameter>\n<parameter=days>3") == '", "days": '
    assert stream.finish(True) == "3}"


BITS = st.sampled_from(
    [
        "<parameter=",
        "city",
        "days",
        ">",
        "\n",
        "</parameter>",
        "<",
        "/",
        "parameter",
        " ",
        "x",
        "</",
        "3",
        "=",
        "é🌸",
        '"',
        "\\",
    ]
)


@given(st.lists(BITS, max_size=30).map("".join), st.booleans(), st.sampled_from([TOOL, None]), st.randoms())
@settings(max_examples=500, deadline=None)
def test_any_text_gives_valid_json_however_it_is_cut(raw, complete, tool, dice):
    for syntax in (LINES, EQUALS):
        once = whole(raw, syntax, tool, complete)
        json.loads(once)
        letters = list(range(1, len(raw)))
        assert pieces(raw, letters, syntax, tool, complete) == once
        cuts = sorted(dice.sample(letters, min(len(letters), 3)))
        assert pieces(raw, cuts, syntax, tool, complete) == once


WORDS = st.sampled_from(["a", "\n", " ", "<", ">", "</parameter>", "</p", "é", '"', "\\", "</function>"])
VALUE = st.lists(WORDS, max_size=12).map("".join)


@given(st.dictionaries(st.sampled_from(["path", "content", "city"]), VALUE, max_size=3))
def test_values_that_quote_closers_come_back_whole(values):
    raw = "".join(parameter(name, value) for name, value in values.items())
    assert json.loads(whole(raw)) == values


def cost(size):
    raw, stream = parameter("content", "x<y\n" * (size // 4)), ArgumentStream(LINES, Schema(TOOL))
    start = time.process_time()
    for at in range(0, len(raw), 4):
        stream.feed(raw[at : at + 4])
    stream.finish(True)
    return time.process_time() - start


def test_the_cost_grows_with_the_length():
    small, large = (min(cost(size) for _ in range(3)) for size in (20_000, 80_000))
    assert large < 4 * small * 1.6


def test_text_that_never_becomes_a_tag_costs_no_more():
    random.seed(1)
    for bait in ("<", "</parameter>", "<parameter=city>", "</parameter>\n", "< / ", "<parameter=\n"):
        raw, stream = "<parameter=content>\nx\n " + bait * (60_000 // len(bait)), ArgumentStream(LINES, Schema(TOOL))
        start = time.process_time()
        for at in range(0, len(raw), 4):
            stream.feed(raw[at : at + 4])
        stream.finish(True)
        whole(raw)
        assert time.process_time() - start < 3, bait
