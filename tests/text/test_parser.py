"""The own parser: every public case of its formats, and what the cases do not show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine_overlay.text.events import Choice, Kind
from engine_overlay.text.formats import CALLS, REASONING, STOCK_CALLS, STOCK_REASONING, UNIFIED, compose
from engine_overlay.text.parser import TextParser
from engine_overlay.text.vocab import Vocab
from engine_overlay.verify import cases as public
from engine_overlay.verify.tokens import CaseTokenizer
from tests.text import own

MORE = Path(__file__).parents[1] / "patches" / "cases"
CASES = [case for case in (*public.load(), *public.load(MORE)) if own.covers(case)]
MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
WEATHER = {
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
}
CALL = "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>"


def test_the_formats_that_people_serve_have_their_cases():
    assert len(CASES) >= 100


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_case(case):
    run = own.Run(case)
    wrong = {}
    full = run.full()
    every_cut = {f"{n}|": [n, len(case["token_pieces"]) - n] for n in range(1, len(case["token_pieces"]))}
    for way, cuts in (public.cuts(case) | every_cut).items():
        answer = run.stream(cuts)
        if difference := public.wrong(case, answer):
            wrong[way] = difference
        elif own.raw(answer) != own.raw(full):
            wrong[way] = {"not as full": own.raw(answer), "full": own.raw(full)}
    if difference := public.wrong(case, full):
        wrong["full"] = difference
    assert not wrong


def test_every_name_leads_to_a_format():
    for reasoning, calls in UNIFIED.values():
        form = compose(reasoning, calls)
        assert form.end == "</think>" and set(form.tokens) <= set(form.markers)
    assert set(STOCK_REASONING.values()) <= set(REASONING) and set(STOCK_CALLS.values()) <= set(CALLS)
    with pytest.raises(KeyError):
        compose("no such model", None)


# -- one answer at a time


def answer(text, *, size=1, tools=(WEATHER,), special=True, pair=("qwen3", "qwen3_xml"), prompt="", **more):
    """(reasoning, content, calls) of a stream cut into ``size`` tokens a delta; markers are special tokens."""
    tokenizer = CaseTokenizer((), MARKERS if special else (), [])
    ids = tokenizer.encode(text)
    form = compose(*pair)
    vocab = Vocab(form, tokenizer.get_added_vocab, lambda ids: tokenizer.decode(list(ids)))
    parser = TextParser(form, vocab, tools=[{"type": "function", "function": t} for t in tools], **more)
    if prompt:
        parser.start(tokenizer.encode(prompt))
    events, sent = [], 0
    for at in range(0, len(ids), size):
        known = tokenizer.decode(ids[: at + size]).rstrip("\ufffd")
        events += parser.feed(known[sent:], ids[at : at + size], last=at + size >= len(ids))
        sent = len(known)
    got = public.Answer()
    for event in events:
        own.add(got, event)
    calls = [(name, json.loads(arguments)) for name, arguments in (got.calls or {}).values()]
    assert parser.called == bool(calls)
    return got.reasoning, got.content, calls


@pytest.mark.parametrize("size", [1, 4, 1000])
@pytest.mark.parametrize("special", [True, False])
class TestAnswers:
    def test_text_around_calls_is_kept(self, size, special):
        text = f"Hm.</think>\n\nFirst.\n{CALL}\nBetween.\n{CALL}\nLast."
        reasoning, content, calls = answer(text, size=size, special=special)
        assert (reasoning, content) == ("Hm.", "\n\nFirst.\n\nBetween.\n\nLast.")
        assert calls == [("get_weather", {"city": "Oslo"})] * 2

    def test_a_choice_of_none_drops_the_call_and_keeps_the_text(self, size, special):
        text = f"Hm.</think>\n\nFirst.\n{CALL}\nLast."
        got = answer(text, size=size, special=special, choice=Choice.NONE)
        assert got == ("Hm.", "\n\nFirst.\n\nLast.", [])

    def test_without_tools_the_markup_is_text(self, size, special):
        text = f"Hm.</think>\n\nSo:\n{CALL}\nLast."
        assert answer(text, size=size, special=special, tools=()) == ("Hm.", f"\n\nSo:\n{CALL}\nLast.", [])

    def test_an_undeclared_tool_is_not_called(self, size, special):
        text = f"Hm.</think>\n\n{CALL.replace('get_weather', 'rm')}"
        reasoning, content, calls = answer(text, size=size, special=special)
        assert calls == [] and "<function=rm>" in content

    def test_thinking_that_the_request_switched_off(self, size, special):
        assert answer("Four.", size=size, special=special, thinking=False) == ("", "Four.", [])

    def test_thinking_that_never_ends(self, size, special):
        assert answer("Hm, let me", size=size, special=special) == ("Hm, let me", "", [])

    def test_required_as_guided_json(self, size, special):
        text = 'Hm.</think>\n\n[{"name": "get_weather", "parameters": {"city": "</tool_call>", "days": 2}}]'
        got = answer(text, size=size, special=special, choice=Choice.REQUIRED)
        assert got == ("Hm.", "", [("get_weather", {"city": "</tool_call>", "days": 2})])

    def test_required_as_the_model_writes_it(self, size, special):
        got = answer(f"Hm.</think>\n\n{CALL}", size=size, special=special, choice=Choice.REQUIRED)
        assert got == ("Hm.", "", [("get_weather", {"city": "Oslo"})])

    def test_a_named_tool_as_guided_json(self, size, special):
        got = answer(
            'Hm.</think>{"city": "Oslo"}', size=size, special=special, choice=Choice.NAMED, named="get_weather"
        )
        assert got == ("Hm.", "", [("get_weather", {"city": "Oslo"})])

    def test_prose_where_a_call_was_required_is_not_lost(self, size, special):
        got = answer("Hm.</think>I cannot. {x}", size=size, special=special, choice=Choice.REQUIRED)
        assert got == ("Hm.", "I cannot. {x}", [])


def test_a_prompt_that_closed_the_reasoning():
    prompt = "<think>\n\n</think>\n\n"
    assert answer("Four.", prompt=prompt) == ("", "Four.", [])


def test_a_prompt_whose_history_closed_it():
    prompt = "assistant\n<think>\nold</think>hi\nassistant\n<think>\n"
    assert answer("Hm.</think>Four.", prompt=prompt) == ("Hm.", "Four.", [])


@pytest.mark.parametrize("end", range(len(f"Hm.</think>\n\n{CALL}") + 1))
def test_an_answer_that_is_cut_off_anywhere_is_valid_and_invents_nothing(end):
    text = f"Hm.</think>\n\n{CALL}"[:end]
    one, many = answer(text, size=1), answer(text, size=1000)
    assert one == many
    for name, arguments in one[2]:
        # A lone "<" may be the beginning of a closing tag as well as text.
        city = arguments.get("city", "").removesuffix("<").rstrip()
        assert name == "get_weather" and "Oslo".startswith(city)


def test_kimi_keeps_the_ids_that_the_model_wrote():
    text = (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:3<|tool_call_argument_begin|>"
        '{"city": "Oslo"}<|tool_call_end|><|tool_calls_section_end|> Done.'
    )
    form = compose(None, "kimi_k2")
    parser = TextParser(form, Vocab(form, dict, lambda ids: ""), tools=[{"type": "function", "function": WEATHER}])
    events = parser.feed(text, [], last=True)
    assert events[0] == (Kind.CALL, "get_weather", 0, "functions.get_weather:3")
    assert events[-1].kind is Kind.CONTENT and events[-1].text.strip() == "Done."


def test_special_tokens_that_the_text_leaves_out_are_found_by_their_ids():
    form = compose("qwen3", None)
    tokenizer = CaseTokenizer(("</think>",), (), [])
    vocab = Vocab(form, tokenizer.get_added_vocab, tokenizer.decode, tokenizer.all_special_ids)
    parser = TextParser(form, vocab)
    ids = tokenizer.encode("Hm.</think>Four.")
    events = parser.feed("Hm.Four.", ids, last=True)
    assert [(e.kind, e.text) for e in events] == [(Kind.REASONING, "Hm."), (Kind.CONTENT, "Four.")]
