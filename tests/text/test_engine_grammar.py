"""The grammar that is read from an engine's parser configuration."""

from __future__ import annotations

from engine_overlay.text.engine_grammar import grammar_of
from engine_overlay.text.grammar import Role


class Config:
    """The fields of a ParserEngineConfig that make a grammar, with enum-like states and events by name."""

    class Named:
        def __init__(self, name, **fields):
            self.name = name
            self.__dict__.update(fields)

    tool_args_json = False
    terminals = {"END": ("</think>", "</thought>"), "OPEN": "<call>", "PARAM": "</p>", "CLOSE": "</call>"}
    token_id_terminals = {"END": "</think>", "OPEN": "<call>"}

    def __init__(self):
        state = {n: self.Named(n) for n in ("CONTENT", "REASONING", "TOOL_ARGS", "MESSAGE_HEADER")}
        end = (self.Named("REASONING_END"),)
        self.transitions = {
            (state["REASONING"], "END"): self.Named("", next_state=state["CONTENT"], events=end),
            (state["CONTENT"], "OPEN"): self.Named("", next_state=state["TOOL_ARGS"], events=()),
            (state["TOOL_ARGS"], "CLOSE"): self.Named("", next_state=state["CONTENT"], events=()),
            (state["MESSAGE_HEADER"], "UNKNOWN"): self.Named("", next_state=state["CONTENT"], events=()),
        }


def test_the_grammar_is_read_from_the_engines_own_config():
    config = Config()
    grammar = grammar_of(config)
    assert grammar.moves == {
        (Role.REASONING, "</think>"): Role.CONTENT,
        (Role.REASONING, "</thought>"): Role.CONTENT,
        (Role.CONTENT, "<call>"): Role.ARGS,
        (Role.ARGS, "</call>"): Role.CONTENT,
    }
    assert grammar.ends_reasoning == {(Role.REASONING, "</think>"), (Role.REASONING, "</thought>")}
    assert grammar.value_closers == ("</p>",)
    assert grammar_of(config) is grammar
