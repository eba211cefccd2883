"""What a patch needs to keep a thinking budget from forcing an end of reasoning where there was one already.

Engine-neutral: the state of a request is a dict of the engine's, and only its entries are named here.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from engine_overlay.text import handoff
from engine_overlay.text.end_in_ids import EndInIds, NamesIn
from engine_overlay.text.grammar import AnyName
from engine_overlay.text.reading import Reading, reading_of

MAX_WAIT = 640
"""Tokens that an end is put off at most, while a marker is undecided."""

_WATCH = "_engine_overlay_watch"
_CLOSED = {
    "in_think": False,
    "in_end": False,
    "end_count": 0,
    "think_count": 0,
    "force_index": [],
    "start_thinking": -1,
    "end_thinking": -1,
    "continue_thinking": False,
    "bonus_token_forced": False,
}
_CHANGES = (*_CLOSED, "check_count_down", "prev_output_length", "scan_offset")


def is_tag(text: str) -> bool:
    """Whether ``text`` is one tag, such as ``<think>``, behind whose end the answer follows.

    Not so for channels and messages of several parts, of which an answer may have more than one.
    """
    text = text.strip()
    return bool(text) and not text[0].isalnum() and len(text.split()) == 1 and text.count("<") <= 1


def reading_for(
    parser: Callable[[], Any], tokenizer: Any, start: Sequence[int], end: Sequence[int]
) -> Reading | None:
    """The reading of a model whose budget counts from the ids ``start`` and forces the ids ``end``.

    None where nothing is known of the format, which is then left to the engine.
    """
    if tokenizer is None or not start or not end:
        return None
    if not is_tag(tokenizer.decode(list(start), skip_special_tokens=False)):
        return None
    try:
        made = parser()
    except Exception:  # the engine says itself, and better, what is wrong with it
        made = None
    return reading_of(made, tokenizer, {}, tokenizer.decode(list(end), skip_special_tokens=False).strip())


def reading_from(engine: Any, config: Any, start: Sequence[int], end: Sequence[int]) -> Reading | None:
    """The reading that belongs to the engine's whole ``config``, or None when there is no config."""
    if config is None or config.model_config is None:
        return None
    tokenizer = engine.module("tokenizers").cached_tokenizer_from_config(model_config=config.model_config)
    name = config.structured_outputs_config.reasoning_parser
    manager = engine.module("reasoning").ReasoningParserManager
    return reading_for(lambda: manager.get_reasoning_parser(name)(tokenizer), tokenizer, start, end)


def current_config(engine: Any) -> Any:
    """The engine's whole config, while its workers are being set up; None at other times."""
    return getattr(engine.module("config"), f"get_current_{engine.name}_config_or_none")()


class Watch:
    """One request with a budget: where its thinking began in its output, and whether it is over."""

    __slots__ = ("_end", "_reading", "_size", "_start", "_waited", "begin", "over")

    def __init__(
        self, reading: Reading, start: Sequence[int], thinking: bool, prompt: Sequence[int] | None
    ) -> None:
        """``thinking``: the prompt has opened the reasoning. ``prompt``: its ids, or None when not known."""
        self._reading, self._start, self._size = reading, list(start), len(start)
        self.begin: int | None = 0 if thinking else None
        self.over = False
        self._waited = 0
        ids = list(prompt or ())
        text: list[str] = []

        def read() -> str:
            if not text:
                text.append(reading.vocabulary.decode(ids))
            return text[0]

        # Names of tools stand in the prompt that declares them; without ids any name will do.
        names = AnyName() if prompt is None else NamesIn(read)
        self._end: EndInIds = reading.watch(names, None if reading.confirms else lambda: ids)

    def ended(self, output: Sequence[int]) -> bool:
        """Whether reasoning is over after these ids of the output, for good."""
        if not self.over and self._began(output) and self.begin is not None:
            self.over = self._end.feed(self._block(output)) is not None
        return self.over

    def waits(self, output: Sequence[int], drafts: Sequence[int] = ()) -> bool:
        """Whether an end must not be forced behind ``output`` and ``drafts``: there is one, or there may be."""
        if self.begin is None:
            return self.over
        block, end = self._block(output), self._end
        if drafts:
            block, end = [*block, *drafts], end.copy()
            if end.feed(block) is not None:
                return True
        limit = MAX_WAIT if end.undecided else self._reading.vocabulary.window if end.unfinished(block) else 0
        self._waited = self._waited + 1 if limit else 0
        return 0 < self._waited <= limit

    def _began(self, output: Sequence[int]) -> bool:
        """Whether reasoning has begun; it may do so at the very beginning of the output only."""
        if self.begin is not None:
            return True
        decode = self._reading.vocabulary.decode
        for at, token in enumerate(output):
            if token < 0:
                return False
            if list(output[at : at + self._size]) == self._start:
                self.begin = at + self._size
                return True
            if self._start[: len(output) - at] == list(output[at:]):
                return False  # the first ids of the start, and nothing more yet
            if decode([token]).strip():
                # It answers without reasoning: a start from here on is text.
                self.over = True
                return True
        return False

    def _block(self, output: Sequence[int]) -> Sequence[int]:
        assert self.begin is not None
        return output[self.begin :] if self.begin else output


def update(
    state: dict[str, Any], start: Sequence[int], end: Sequence[int], reading: Reading | None, stock: Callable[[], None]
) -> None:
    """Do ``stock``, which counts the new tokens of ``state`` and may begin to force ``end``, unless that would harm.

    Once reasoning is over nothing is counted or forced any more. Where a marker is undecided when the budget is used
    up, ``stock`` is undone and tried again with the next token.
    """
    watch: Watch | None = state.get(_WATCH, state)  # type: ignore[assignment]
    if watch is state:
        thinking = bool(state["in_think"] or state["in_end"])
        watch = None if reading is None else Watch(reading, start, thinking, state.get("prompt_tok_ids"))
        state[_WATCH] = watch
    if watch is None or (state["in_end"] and len(end) > 1):
        # While a longer end is being written it is the engine's turn.
        stock()
        return
    output = state["output_tok_ids"]
    if watch.ended(output):
        if not state.get("_engine_overlay_closed"):
            close(state)
        return
    before = {name: state[name] for name in _CHANGES if name in state}
    stock()
    if state["in_end"] and state["end_count"] == 0:
        drafts, force = state.get("spec_token_ids") or (), state.get("force_index")
        if watch.waits(output, drafts[: force[0]] if force else ()):
            state.update(before | {"in_end": False})
            if "force_index" in state:
                state["force_index"] = []


def close(state: dict[str, Any]) -> None:
    """Leave the state of a request as if it had never thought, for good."""
    state.update({name: value for name, value in _CLOSED.items() if name in state})
    if "force_index" in state:
        state["force_index"] = []
    state["check_count_down"] = state["thinking_token_budget"]
    state["_engine_overlay_closed"] = True


TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
PIECES = ("Hm", ".", " `", "`", "</", "think", ">", "\n", "Four", "=", "<function", "get_weather", "<parameter", "city")
"""For probes: special and ordinary words of the tokenizer that :func:`model` makes."""


@contextlib.contextmanager
def worker(engine: Any, parser: str = "", pieces: Sequence[str] = PIECES) -> Iterator[tuple[Any, Any]]:
    """For probes: the tiny tokenizer of a model, and the config of a worker that is being set up for it."""
    tokenizer = handoff.tiny_tokenizer(pieces, TAGS)
    with tempfile.TemporaryDirectory(prefix="engine-overlay-") as folder:
        tokenizer.save_pretrained(folder)
        (Path(folder) / "config.json").write_text('{"model_type": "qwen3"}', encoding="utf-8")
        model_class = engine.module("config").ModelConfig
        # Its constructor would want a model's weights and architecture; only the tokenizer is asked for here.
        made = model_class.__new__(model_class)
        for name, value in {
            "tokenizer": folder,
            "tokenizer_mode": "auto",
            "tokenizer_revision": None,
            "trust_remote_code": False,
            "skip_tokenizer_init": False,
            "runner_type": "generate",
        }.items():
            object.__setattr__(made, name, value)
        reasoning = engine.module("config.reasoning").ReasoningConfig(
            reasoning_start_str="<think>", reasoning_end_str="</think>"
        )
        reasoning.initialize_token_ids(made)
        config = SimpleNamespace(
            reasoning_config=reasoning,
            model_config=made,
            scheduler_config=SimpleNamespace(max_num_seqs=1),
            structured_outputs_config=SimpleNamespace(reasoning_parser=parser),
        )
        with getattr(engine.module("config"), f"set_current_{engine.name}_config")(config):
            yield tokenizer, config


def update_of(engine: Any, prompt: list[int], output: list[int], budget: int) -> Any:
    """For probes: what tells the engine's batch state that a request with a budget has come, as its row 0."""
    update = engine.module("v1.sample.logits_processor.interface").BatchUpdate
    params = SimpleNamespace(thinking_token_budget=budget)
    return update(batch_size=1, removed=[], added=[(0, params, prompt, output)], moved=[])
