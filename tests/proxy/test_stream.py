"""Streams and whole answers through the filter, without a network: bytes, order, what is held, loops."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_overlay.proxy import stream as streaming
from engine_overlay.proxy.choices import clean_choices
from engine_overlay.proxy.edges import End, clean
from engine_overlay.proxy.options import BadOption, Options, parse
from engine_overlay.proxy.request import CHAT, COMPLETIONS, RESPONSES, Asked, read, with_budget
from engine_overlay.proxy.responses import clean_response
from tests.proxy import streams
from tests.proxy.streams import DONE, HEAD, chat, content, cut, cut_bytes, delta, event, finish, through
from tests.proxy.test_edges import TEXTS

CALL = {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "</think>"}}]}
HEALTHY = [
    ["Hello", ", ", "world", " <b>", "it</b> is `</think>` é😀"],
    [{"reasoning": "hm </think>"}, "\n\n", "call", " me: a ", "<", " b, think", " in", "."],
    ["i", "n all", "<", "link", "> .", "call", " t", "hink", " about </", "div>"],
    [{"reasoning_content": "x"}, "Look.", CALL, {"content": None}],
]
LOOP = ["<think>", "\n\n", "</think>", "\n\n"]
PLACES = st.lists(st.integers(0, 10_000), max_size=40)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(HEALTHY), PLACES, st.sampled_from([b"\n", b"\r\n"]))
def test_a_healthy_stream_keeps_every_byte_however_the_network_cuts(
    pieces: list[Any], places: list[int], end: bytes
) -> None:
    wire = b"".join(chat(pieces)).replace(b"\n", end)
    wire = wire.replace(end * 2, end * 2 + b": keep-alive" + end * 2, 1)
    assert through(cut_bytes(wire, places)) == wire
    assert through([wire[i : i + 1] for i in range(len(wire))]) == wire


@settings(max_examples=600, deadline=None)
@given(TEXTS, PLACES, PLACES, st.booleans())
def test_a_stream_says_what_the_whole_answer_says(
    text: str, tokens: list[int], places: list[int], reasoned: bool
) -> None:
    before = [{"reasoning": "hm"}] if reasoned else []
    wire = chat([*before, *cut(text, tokens)])
    out = through(cut_bytes(b"".join(wire), places), empty_thoughts=0)
    assert content(out) == clean(text, End.WHOLE, reasoned=reasoned)
    # No event is lost, joined or moved.
    assert out.count(b"\n\n") == len(wire) and out.endswith(DONE) and finish(out) == "stop"
    message = {"role": "assistant", "content": text, "reasoning": "hm" if reasoned else None}
    data = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    assert clean_choices(data, Options(), Asked()) == (content(out) != text)
    assert data["choices"][0]["message"]["content"] == content(out)


def test_what_needs_no_look_ahead_is_passed_on_at_once() -> None:
    one = streams.stream()
    for sent in chat(["Hello", " world", ".", " I think", " so", "\n\n", "`", "</think>", "`"]):
        assert one.feed(sent) == sent


def test_only_the_edge_is_held_and_leaves_with_what_decides_it() -> None:
    one = streams.stream()
    first, tag, gap, word, *_ = chat(["</think>", "\n\n", "Hello"])
    assert one.feed(first) == first
    assert one.feed(tag) == b""
    both = one.feed(gap)
    assert content(both) == "\n\n" and both.count(b"\n\n") == 2
    assert one.feed(word) == word


@pytest.mark.parametrize("last", [b"", b": keep-alive\n\n", event({"error": {"message": "gone", "code": 500}})])
def test_held_text_is_given_back_at_a_break_a_keep_alive_and_an_error(last: bytes) -> None:
    sent = chat(["Done.", "</th", "ink>"])[:-3]
    assert through([*sent, last]) == b"".join(sent) + last


def test_a_tag_before_calls_and_one_behind_them_go() -> None:
    out = through(chat(["Let me look.", "<tool", "_call>", CALL, "</tool_call>", "\n"], finish="tool_calls"))
    assert content(out) == "Let me look.\n"
    deltas = [o["choices"][0]["delta"] for o in streams.objects(out) if o["choices"]]
    assert [d["tool_calls"] for d in deltas if "tool_calls" in d] == [CALL["tool_calls"]]


def test_choices_are_judged_apart_and_stay_in_order() -> None:
    sent = [event(delta(0, content="</think>")), event(delta(1, content="Hi")), event(delta(0, content="A"))]
    sent += [event(delta(1, content=".</think>")), event(delta(0, "stop")), event(delta(1, "length")), DONE]
    out = through(sent, asked=Asked(choices=2))
    assert (content(out, 0), content(out, 1)) == ("A", "Hi.")
    assert [o["choices"][0]["index"] for o in streams.objects(out)] == [0, 1, 0, 1, 0, 1]
    both = {**HEAD, "choices": [delta(i, content=f"</think>\n{i}")["choices"][0] for i in (0, 1)]}
    out = through([event(both), event(delta(0, "stop")), event(delta(1, "stop")), DONE])
    assert (content(out, 0), content(out, 1)) == ("\n0", "\n1")


def test_logprobs_usage_and_ids_of_a_changed_event_stay() -> None:
    said = delta(content="Done.</think>", finish="stop")
    said["choices"][0]["logprobs"] = {"content": [{"token": "</think>", "logprob": -0.1, "bytes": [60]}]}
    said["usage"] = {"completion_tokens": 3}
    got = streams.objects(through([event(said), DONE]))[0]
    assert got["choices"][0]["delta"]["content"] == "Done."
    said["choices"][0]["delta"]["content"] = "Done."
    assert got == said


def test_what_is_held_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "MAX_HELD", 2000)
    one = streams.stream(asked=Asked(choices=2))
    sent, out = [event(delta(0, content=".</thi"))], b""
    out += one.feed(sent[0])
    for number in range(100):
        sent.append(event(delta(1, content=f"word {number}")))
        out += one.feed(sent[-1])
        assert len(b"".join(sent)) - len(out) <= 2000 + len(sent[-1])
    assert out == b"".join(sent)


@pytest.mark.parametrize("before", [[], ["Hello."], [{"reasoning": "hm"}]])
def test_empty_thoughts_are_ended_properly(before: list[Any]) -> None:
    sent = [*chat([*before, *LOOP * 50], finish=None, usage=False)[:-1]]
    one = streams.stream(empty_thoughts=8)
    out = b""
    for piece in sent[: 1 + len(before) + 8 * len(LOOP)]:
        out += one.feed(piece)
    assert one.stopped and out.endswith(DONE) and finish(out) == "length"
    assert content(out).strip() == "".join(p for p in before if isinstance(p, str))
    assert one.feed(sent[0]) == b""


@pytest.mark.parametrize("said", [{"content": ""}, {}, {"content": "\n"}, {"reasoning": ""}, {"content": None}])
def test_endless_empty_deltas_are_ended(said: dict[str, Any]) -> None:
    one = streams.stream(blank_deltas=50)
    out = [one.feed(event(delta(**said))) for _ in range(49)]
    assert not one.stopped and all(out)
    last = one.feed(event(delta(**said)))
    assert one.stopped and last.endswith(DONE) and finish(last) == "length"


def test_with_tools_empty_deltas_may_go_on_but_white_space_may_not() -> None:
    asked = Asked(tools=True)
    wire = chat([{"content": ""}] * 500 + [CALL], finish="tool_calls")
    assert through(wire, asked=asked, blank_deltas=50) == b"".join(wire)
    out = through(chat(["\n"] * 500), asked=asked, blank_deltas=50)
    assert out.endswith(DONE) and finish(out) == "length" and len(out) < len(b"".join(wire)) / 2


@pytest.mark.parametrize(
    "text", ["`<think>\n\n</think>`, " * 30, "<think>a</think>\n" * 30, "```\n" + "<think></think>\n" * 30]
)
def test_what_only_looks_like_a_loop_goes_on(text: str) -> None:
    wire = chat(list(text))
    assert through(wire) == b"".join(wire)


def test_one_of_two_choices_loops_and_the_other_is_answered() -> None:
    sent = []
    for text in LOOP * 20:
        sent += [event(delta(0, content=text)), event(delta(1, content="word "))]
    sent.append(event(delta(1, "stop")))
    one = streams.stream(asked=Asked(choices=2))
    out = b"".join(map(one.feed, sent))
    assert content(out, 1) == "word " * 80 and content(out, 0).strip() == ""
    assert (finish(out, 0), finish(out, 1)) == ("length", "stop")
    assert one.stopped and out.count(b'"length"') == 1 and out.endswith(DONE)


def test_a_loop_behind_a_call_ends_as_a_call() -> None:
    out = through(chat([CALL, *LOOP * 20], finish=None), asked=Asked(tools=True))
    assert finish(out) == "tool_calls" and out.endswith(DONE)


def test_a_loop_with_running_usage_ends_with_the_last_usage() -> None:
    sent = [event({**delta(content=text), "usage": {"completion_tokens": n}}) for n, text in enumerate(LOOP * 20)]
    last = streams.objects(through(sent))[-1]
    assert last["choices"] == [] and last["usage"]["completion_tokens"] == 30


@settings(max_examples=300, deadline=None)
@given(TEXTS, PLACES, st.booleans())
def test_responses_say_the_same_in_deltas_and_in_all_that_follows(text: str, places: list[int], reasoned: bool) -> None:
    sent = streams.responses(cut(text, places), "hm" if reasoned else "")
    out = through(sent, RESPONSES, empty_thoughts=0)
    found = streams.objects(out)
    said = "".join(o["delta"] for o in found if o["type"] == "response.output_text.delta")
    assert said == clean(text, End.CUT, reasoned=reasoned)
    assert [o["text"] for o in found if o["type"] == "response.output_text.done"] == [said]
    assert [o["part"]["text"] for o in found if o["type"] == "response.content_part.done"][-1] == said
    assert found[-1]["response"]["output"][-1]["content"][0]["text"] == said
    assert [o["sequence_number"] for o in found] == list(range(len(sent)))
    if said == text:
        assert out == b"".join(sent)
    whole = streams.objects(b"".join(sent))[-1]["response"]
    assert clean_response(whole, Options(), Asked()) == (said != text)
    assert whole["output"][-1]["content"][0]["text"] == said


def test_a_looping_response_is_ended_as_incomplete() -> None:
    out = through(streams.responses(["Hello.", *LOOP * 50], part_only=True), RESPONSES)
    found = streams.objects(out)
    kinds = [o["type"] for o in found]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.incomplete",
    ]
    last = found[-1]["response"]
    assert (last["status"], last["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert last["output"][0]["content"][0]["text"].strip() == "Hello."
    assert [o["sequence_number"] for o in found] == list(range(len(found)))


def test_a_whole_response_is_cleaned_and_reasoning_is_not() -> None:
    parts = [("reasoning", "reasoning_text", "</think> x"), ("message", "output_text", "</think>\n\nHi.</think>")]
    output = [{"type": kind, "content": [{"type": name, "text": text}]} for kind, name, text in parts]
    data = {"output": output}
    assert clean_response(data, Options(), Asked())
    assert [item["content"][0]["text"] for item in output] == ["</think> x", "\n\nHi."]


def test_completions_are_cleaned_unless_the_client_reads_the_format_itself() -> None:
    sent = [
        event({"choices": [{"index": 0, "text": t, "finish_reason": None}]}) for t in ("hink>", "\n\nHi.", "</think>")
    ]
    sent += [event({"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]}), DONE]
    asked = read(COMPLETIONS, b'{"prompt": "Say hi"}')
    assert content(through(sent, COMPLETIONS, asked), kind=COMPLETIONS) == "\n\nHi."
    for raw in ('"<|im_start|>x"', '"<think>\\n"', "[1, 2]", '["a", "\\u003cthink>"]', '"x", "echo": true'):
        asked = read(COMPLETIONS, b'{"prompt": %s}' % raw.encode())
        assert through(sent, COMPLETIONS, asked) == b"".join(sent), raw


def test_what_a_request_says() -> None:
    assert read(CHAT, b'{"messages": [], "n": 3, "tools": [{}]}') == Asked(choices=3, tools=True)
    assert read(CHAT, b'{"continue_final_message": true}') == Asked(start=False)
    assert read(CHAT, b'{"n": ') == read(CHAT, b"[]") == read(CHAT, b'{"n": "x"}') == Asked()
    assert read(COMPLETIONS, b'{"prompt": ["a", "b"], "n": 2}') == Asked(choices=4)


@pytest.mark.parametrize(
    ("body", "sent"),
    [
        (b'{"a": 1 }', b'{"thinking_token_budget":9,"a": 1 }'),
        (b"{ }", b'{"thinking_token_budget":9 }'),
        (b'{"a": "thinking_token_budget"}', b'{"thinking_token_budget":9,"a": "thinking_token_budget"}'),
        (b'{"thinking_token_budget": 5}', b'{"thinking_token_budget": 5}'),
        (b'{"thinking_token_budget": null}', b'{"thinking_token_budget": null}'),
        (b"[1]", b"[1]"),
        (b"", b""),
    ],
)
def test_a_budget_is_put_into_requests_that_have_none(body: bytes, sent: bytes) -> None:
    assert with_budget(body, 9) == sent


def test_options_as_text() -> None:
    chosen = parse("thinking-token-budget=10, empty_thoughts=0, thought_tag=mm:think")
    assert (chosen.thinking_token_budget, chosen.empty_thoughts, chosen.blank_deltas) == (10, 0, 1000)
    assert "</mm:think>" in chosen.tags.whole and parse("") == Options()
    with pytest.raises(BadOption, match="did you mean empty_thoughts"):
        parse("empty_thought=3")
    for wrong in ("empty_thoughts=-1", "blank_deltas=x", "call_tag=<a>", "empty_thoughts"):
        with pytest.raises(BadOption):
            parse(wrong)


@pytest.mark.parametrize(
    "odd", [b"data: {oops\n\n", b"data: [1]\n\n", b'data: {"choices": 3}\n\n', b"\xff\xfe\n\n", b"event: x\n\n"]
)
def test_what_cannot_be_read_is_passed_on(odd: bytes) -> None:
    assert through([odd, odd]) == odd * 2
    sent = chat(["Hi."])
    assert through([odd, *sent]) == odd + b"".join(sent)
    for wrong in ({"choices": [None, 3, {"index": "x"}, {"delta": 4}]}, {"choices": [{"delta": {"content": [1]}}]}):
        assert through([event(wrong)]) == event(wrong)
        assert through([event(wrong)], RESPONSES) == event(wrong)
