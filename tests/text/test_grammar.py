"""When the grammar of a format confirms a spelled marker, and that it never asks for more text than it says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_overlay.text.grammar import AnyName, Before, Grammar, Role, Source

C, R, P, N, A, B = Role.CONTENT, Role.REASONING, Role.PREAMBLE, Role.NAME, Role.ARGS, Role.BETWEEN

XML = Grammar(
    {
        (R, "<think>"): R,
        (R, "</think>"): C,
        (C, "</think>"): C,
        (R, "<tool_call>"): P,
        (C, "<tool_call>"): P,
        (P, "</tool_call>"): C,
        (P, "<function="): N,
        (N, ">"): A,
        (A, "</function>"): B,
        (A, "<parameter="): A,
        (A, "</parameter>"): A,
        (B, "</tool_call>"): C,
        (B, "<tool_call>"): P,
    },
    frozenset({(R, "</think>"), (R, "<tool_call>")}),
    ("</parameter>",),
    json_args=False,
)
KIMI = Grammar(
    {
        (R, "</think>"): C,
        (C, "<|sec|>"): P,
        (P, "<|call|>"): N,
        (N, "<|arg|>"): A,
        (A, "<|end|>"): B,
        (B, "<|call|>"): N,
        (B, "<|/sec|>"): P,
    },
    frozenset({(R, "</think>")}),
    (),
    json_args=True,
)
GLM = Grammar(
    {
        (C, "<tool_call>"): N,
        (N, "<arg_key>"): A,
        (N, "</tool_call>"): C,
        (A, "</tool_call>"): C,
        (A, "</arg_value>"): A,
    },
    frozenset(),
    ("</arg_value>",),
    json_args=False,
)
GRANITE = Grammar({(C, "<|tool_call|>"): A}, frozenset(), (), json_args=True)
NAMES = frozenset({"get_weather", "get_time"})
NOTHING_YET = Before()


def judge(grammar, role, marker, after, *, before=NOTHING_YET, names=NAMES, final=False):
    return grammar.judge(role, marker, before, after, names, final=final)


@pytest.mark.parametrize(
    ("grammar", "marker", "after", "verdict"),
    [
        (XML, "<tool_call>", "", None),
        (XML, "<tool_call>", "\n<func", None),
        (XML, "<tool_call>", "\n<function=get_", None),
        (XML, "<tool_call>", "\n<function=get_weather", None),
        (XML, "<tool_call>", "\n<function=get_weather>", None),
        (XML, "<tool_call>", "\n<function=get_weather>\n<para", None),
        (XML, "<tool_call>", "\n<function=get_weather>\n<parameter=", True),
        (XML, "<tool_call>", "\n<function=get_weather>\n</function>", True),
        (XML, "<tool_call>", '\n<function=get_weather>\n{"city": "Ulm"}', True),
        (XML, "<tool_call>", "\n<function=get_weather> is how it begins", False),
        (XML, "<tool_call>", "\n<function=get_weathers", False),
        (XML, "<tool_call>", "\n<function=steal>", False),
        (XML, "<tool_call>", "` starts a call", False),
        (XML, "<tool_call>", " " * 65, False),
        (XML, "<tool_call>", "</tool_call>", False),
        (KIMI, "<|sec|>", "<|call|>functions.get_weather:0", None),
        (KIMI, "<|sec|>", "<|call|>functions.get_weather:0<|ar", None),
        (KIMI, "<|sec|>", "<|call|>functions.get_weather:0<|arg|>", True),
        (KIMI, "<|sec|>", "<|call|>functions.steal:0<|arg|>", False),
        (GLM, "<tool_call>", "get_time\n<arg_", None),
        (GLM, "<tool_call>", "get_time\n<arg_key>", True),
        (GLM, "<tool_call>", "get_time</tool_call>", True),
        (GLM, "<tool_call>", "opens a call", False),
        (GRANITE, "<|tool_call|>", "", None),
        (GRANITE, "<|tool_call|>", ' [{"name": "get_ti', None),
        (GRANITE, "<|tool_call|>", ' [{"name": "get_time"', True),
        (GRANITE, "<|tool_call|>", ' [{"name": "steal"', False),
        (GRANITE, "<|tool_call|>", " is a marker", False),
    ],
)
def test_an_opener_needs_a_call_to_a_declared_tool(grammar, marker, after, verdict):
    assert judge(grammar, C, marker, after) is verdict
    assert judge(grammar, C, marker, after, names=frozenset()) is False
    assert judge(grammar, C, marker, after, final=True) is (verdict is True)


@pytest.mark.parametrize(
    ("grammar", "marker", "text", "json_open", "verdict"),
    [
        (XML, "</tool_call>", "", False, False),
        (GLM, "</tool_call>", "", False, True),
        (GLM, "</tool_call>", "<arg_value>Oslo</arg_value>\n", False, True),
        (GLM, "</tool_call>", "<arg_value>say ", False, False),
        (KIMI, "<|end|>", '{"a": 1}', False, True),
        (KIMI, "<|end|>", '{"a": "', True, False),
    ],
)
def test_a_closer_never_closes_inside_a_value(grammar, marker, text, json_open, verdict):
    before = Before(text, blank=not text, json_open=json_open)
    assert judge(grammar, A, marker, " more", before=before) is verdict


def test_closers_outside_of_arguments_are_real():
    assert judge(XML, B, "</tool_call>", "") is True and judge(XML, P, "</tool_call>", "") is True


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ("So 12.", "\n\nThe answer", True),
        ("The tag `", "` ends it", False),
        ("The tag `", "", None),
    ],
)
def test_the_end_of_reasoning_is_real_unless_it_is_quoted(before, after, verdict):
    assert judge(XML, R, "</think>", after, before=Before(before, blank=False)) is verdict


def test_a_second_end_and_an_opener_of_reasoning_count_only_at_the_start():
    assert judge(XML, C, "</think>", "", before=Before("\n")) is True
    assert judge(XML, C, "</think>", "", before=Before("text", blank=False)) is False
    assert judge(XML, R, "<think>", "", before=Before("")) is True
    assert judge(XML, R, "<think>", "", before=Before("text", blank=False)) is False


GRAMMARS = {"xml": (XML, C, "<tool_call>"), "kimi": (KIMI, C, "<|sec|>"), "glm": (GLM, C, "<tool_call>")}
PIECES = st.sampled_from(
    [
        "<function=",
        "get_weather",
        "get_time",
        ">",
        "\n",
        " ",
        "<",
        "<|call|>",
        "functions.",
        ":0",
        "<|arg|>",
        "<arg_key>",
        "x",
        "</",
    ]
)


@given(st.sampled_from(sorted(GRAMMARS)), st.lists(PIECES, max_size=60).map("".join))
def test_a_verdict_comes_within_the_bound_and_then_stays(name, text):
    grammar, role, marker = GRAMMARS[name]
    bound = grammar.longest_hold(NAMES)
    seen = [judge(grammar, role, marker, text[:n]) for n in range(len(text) + 1)]
    settled = [v for v in seen if v is not None]
    assert all(v is settled[0] for v in settled), "a verdict was taken back when more text came"
    if settled:
        assert seen.index(settled[0]) + len(marker) <= bound
    else:
        assert len(text) + len(marker) <= bound


SPECIAL, UNKNOWN = Source.SPECIAL, Source.UNKNOWN


@pytest.mark.parametrize("source", [SPECIAL, UNKNOWN])
@pytest.mark.parametrize(
    ("before", "after", "final", "verdict"),
    [
        ("", "\n<function=get_weather>\n<parameter=", False, True),
        ("", "\n<function=steal>\n<parameter=", False, False),
        ("A ", "garbage</tool_call> B", False, True),
        ("A ", "</tool_call> B", False, True),
        ("", "no call here, and more", True, False),
        ("The tag `", "` opens a call", False, False),
        ("Looking.\n", "", True, True),
        ("Looking. ", "\n<function", True, True),
        ("It is called ", "", True, False),
    ],
)
def test_an_opener_that_may_be_real_needs_less(source, before, after, final, verdict):
    known = Before(before, True, not before.strip(), False)
    assert XML.judge(C, "<tool_call>", known, after, NAMES, final=final, source=source) is verdict


def test_whatever_is_called_counts_where_the_tools_are_not_known():
    head = "\n<function=anything>\n<parameter="
    assert XML.judge(C, "<tool_call>", NOTHING_YET, head, AnyName(), final=False, source=SPECIAL) is True
    assert XML.judge(C, "<tool_call>", NOTHING_YET, head, frozenset(), final=False, source=SPECIAL) is False
    assert XML.judge(C, "<tool_call>", NOTHING_YET, "\n<function=a b\n", AnyName(), final=True, source=SPECIAL) is False


def test_a_name_that_was_not_closed_ends_with_its_block():
    head = "\n<function=get_weather\n</tool_call>"
    assert XML.judge(C, "<tool_call>", NOTHING_YET, head, NAMES, final=False, source=SPECIAL) is True


@pytest.mark.parametrize(("after", "verdict"), [("\n</tool_call>", True), (" to start", False), ("\n", None)])
def test_the_end_of_a_call_in_an_open_value_counts_only_before_what_may_follow(after, verdict):
    inside = Before("<parameter=a>\nx\n", False, False, False)
    assert XML.judge(A, "</function>", inside, after, NAMES, final=False, source=UNKNOWN) is verdict


@pytest.mark.parametrize(("after", "verdict"), [("\n<", True), ("\n</tool", True), ("\n<b", False), ("", True)])
def test_the_end_of_a_call_in_an_open_value_counts_where_the_output_ends_in_what_may_follow(after, verdict):
    before = Before("<parameter=city>\nOslo", blank=False)
    assert XML.judge(A, "</function>", before, after, NAMES, final=True) is verdict


def test_a_special_end_of_reasoning_is_always_real():
    quoted = Before("The tag `", True, False, False)
    assert XML.judge(R, "</think>", quoted, "` ends it", NAMES, final=False, source=SPECIAL) is True
    assert XML.judge(R, "</think>", quoted, "` ends it", NAMES, final=False) is False


MINIMAX = Grammar({(C, "<calls>"): P, (C, "</calls>"): C, (P, "<invoke="): N, (N, ">"): A}, frozenset(), (), False)


@pytest.mark.parametrize(
    ("before", "verdict"),
    [
        ("", True),
        ("Done.\n", True),
        ("See `<calls>", False),
        ("<calls>\n<invoke=rm>", False),
        ("<calls a='b'>", False),
        ("<calls></calls>", True),
        ("</calls>", True),
        ("</calls> <calls>", False),
        ("<callsign>", True),
    ],
)
def test_a_closer_that_closes_nothing_is_dropped_unless_its_opener_was_text(before, verdict):
    context = Before(before, True, not before.strip())
    assert MINIMAX.judge(C, "</calls>", context, "\n", NAMES, final=False, source=Source.UNKNOWN) is verdict


CLOSED = "\n<parameter=city>\nUlm\n</parameter>\n"
EXAMPLE = "\n<parameter=text>\n<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n"


@pytest.mark.parametrize(
    ("marker", "before", "after", "final", "ends"),
    [
        # A call whose own closing tag is missing.
        ("</tool_call>", CLOSED, "", True, True),
        ("</tool_call>", CLOSED, "\n", False, None),
        ("</tool_call>", CLOSED, "\nThere.", False, True),
        ("</tool_call>", CLOSED, "\n<tool_call>\n", False, True),
        ("</tool_call>", "", "", True, True),
        # The value goes on: what looked like the end was in it.
        ("</tool_call>", CLOSED, "\n</parameter>", False, False),
        ("</tool_call>", CLOSED, "\n</para", False, None),
        # An open value ends with the output, or where the next call begins.
        ("</tool_call>", "\n<parameter=city>\nUlm\n", "", True, True),
        ("</tool_call>", "\n<parameter=city>\nUlm\n", "\n", False, None),
        ("</tool_call>", "\n<parameter=city>\nUlm\n", "\n<tool_call>", False, True),
        ("</tool_call>", "\n<parameter=city>\nUlm ", " closes it", False, False),
        ("</tool_call>", EXAMPLE, "\n<tool_call>\n<function=f>", False, True),
        # The next call, its opener behind a closed value only.
        ("<tool_call>", CLOSED, "\n<function=f>\n<parameter=a>", False, True),
        ("<tool_call>", CLOSED, "\n<function=g>\n<parameter=a>", False, False),
        ("<tool_call>", "\n<parameter=city>\nUlm\n", "\n<function=f>\n<parameter=a>", False, False),
        # What the arguments know is not asked of this rule.
        ("</function>", CLOSED, "", True, False),
        ("</think>", CLOSED, "", True, False),
    ],
)
def test_a_call_that_was_left_open_ends_with_its_block(marker, before, after, final, ends):
    seen = XML.ends_open_call(
        marker, Before(before, blank=not before), after, {"f"}, final=final, source=Source.UNKNOWN
    )
    assert seen is ends


@pytest.mark.parametrize(
    ("before", "after", "final", "real"),
    [
        (EXAMPLE, "\n</tool_call>\n</parameter>\n</function>", False, False),
        (EXAMPLE, "\n</tool_call>\nas above\n", False, False),
        (EXAMPLE, "\n</tool_call>\n<tool_call>\n", False, False),
        (EXAMPLE, "\n</tool_call>", False, None),
        # The output ends here: it was the call's own end.
        (EXAMPLE, "\n</tool_call>", True, True),
        (EXAMPLE + "</function>\n</tool_call>\n</parameter>\n", "\n</tool_call>", True, True),
        (EXAMPLE + "</function>\n</tool_call>\n</parameter>\n", "\n</tool_call>\nText.", False, True),
        # Only talked about, and so no call that could be open.
        ("\n<parameter=text>\nUse <function=f> so.\n</parameter>\n", "\n</tool_call>\nText.", False, True),
        # Without any of it nothing is waited for.
        (CLOSED, "", False, True),
    ],
)
def test_the_end_of_an_example_in_a_value_is_not_the_end_of_the_call(before, after, final, real):
    seen = Before(before, blank=False)
    for source in (Source.SPELLED, Source.UNKNOWN):
        assert XML.judge(A, "</function>", seen, after, {"f"}, final=final, source=source) is real
