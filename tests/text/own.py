"""A case of tests/cases put straight through the own parser, with no engine around it."""

from __future__ import annotations

from typing import Any

from engine_overlay.text.events import Choice, Event, Kind
from engine_overlay.text.formats import STOCK_CALLS, STOCK_REASONING, compose
from engine_overlay.text.parser import TextParser
from engine_overlay.text.vocab import Vocab
from engine_overlay.verify.cases import Answer, Case, delta_texts, full_text, piece_bytes
from engine_overlay.verify.tokens import DEFAULT_SPECIAL, CaseTokenizer


def covers(case: Case) -> bool:
    """Whether the own parser reads both halves of the case's format."""
    return case["reasoning_parser"] in (None, *STOCK_REASONING) and case["tool_parser"] in (None, *STOCK_CALLS)


class Run:
    """One case with its tokenizer; a new parser for each answer."""

    def __init__(self, case: Case) -> None:
        self.case = case
        prompt, pieces = (list(map(piece_bytes, case[key])) for key in ("prompt_pieces", "token_pieces"))
        self.tokenizer = CaseTokenizer(case.get("special", DEFAULT_SPECIAL), case["atomic"], [*prompt, *pieces])
        self.prompt = [self.tokenizer.id_of(piece) for piece in prompt]
        self.ids = [self.tokenizer.id_of(piece) for piece in pieces]
        self.finish_reason = case.get("engine_finish", "stop")
        eos = self.tokenizer.eos_token_id
        self.eos = [eos] if self.finish_reason == "stop" and eos is not None else []
        self.form = compose(STOCK_REASONING.get(case["reasoning_parser"]), STOCK_CALLS.get(case["tool_parser"]))

    def parser(self) -> TextParser:
        case, tokenizer = self.case, self.tokenizer
        special = tokenizer.all_special_ids
        vocab = Vocab(self.form, tokenizer.get_vocab, lambda ids: tokenizer.decode(list(ids)), special)
        choice, named = case.get("tool_choice") or "auto", None
        if isinstance(choice, dict):
            choice, named = "named", choice["function"]["name"]
        made = TextParser(
            self.form,
            vocab,
            tools=[{"type": "function", "function": tool} for tool in case["tools"] or ()],
            choice=Choice(choice),
            named=named,
            thinking=(case.get("chat_template_kwargs") or {}).get("enable_thinking"),
        )
        made.start(self.prompt)
        return made

    def stream(self, cuts: list[int]) -> Answer:
        parser = self.parser()
        events: list[Event] = []
        apart = bool(self.eos) and not self.case.get("eos_same_delta")
        start = 0
        for n, (text, size) in enumerate(zip(delta_texts(self.case, cuts), cuts, strict=True), start=1):
            last = n == len(cuts) and not apart
            events += parser.feed(text, self.ids[start : start + size] + (self.eos if last else []), last=last)
            start += size
        if apart:
            events += parser.feed("", self.eos, last=True)
        return self._answer(parser, events)

    def full(self) -> Answer:
        parser = self.parser()
        return self._answer(parser, parser.feed(full_text(self.case), self.ids + self.eos, last=True))

    def _answer(self, parser: TextParser, events: list[Event]) -> Answer:
        called = parser.called and self.finish_reason == "stop"
        answer = Answer(finish_reason="tool_calls" if called else self.finish_reason)
        for event in events:
            add(answer, event)
        return answer


def add(answer: Answer, event: Event) -> None:
    if event.kind is Kind.REASONING:
        answer.add(event.text, None)
    elif event.kind is Kind.CONTENT:
        answer.add(None, event.text)
    elif event.kind is Kind.CALL:
        answer.add_call(event.index, event.text, None)
    else:
        answer.add_call(event.index, None, event.text)


def raw(answer: Answer) -> dict[str, Any]:
    """An answer byte for byte, for comparing a stream with the full answer."""
    return {"reasoning": answer.reasoning, "content": answer.content, "calls": answer.calls}
