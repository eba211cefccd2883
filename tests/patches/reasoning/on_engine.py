"""What an engine's own reasoning parsers and parser engines answer with the patches and without them.

    python -m tests.patches.reasoning.on_engine FILE

Runs in a process of one release that was started with the overlay, and writes what it saw as JSON;
test_on_engines judges it. "on" is asked first, then the patches are undone for "off".
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MARKERS = (
    "<think> </think> <tool_call> </tool_call> <arg_key> </arg_key> <arg_value> </arg_value> "
    "<assistant> <minimax:tool_call> </minimax:tool_call> <seed:think> </seed:think> "
    "<seed:tool_call> </seed:tool_call> "
    "<|tool_calls_section_begin|> <|tool_calls_section_end|> <|tool_call_begin|> <|tool_call_end|> "
    "<|tool_call_argument_begin|> ｜DSML｜ <|channel|> <|message|> <|end|> <|start|> <|eom|> <|eot|> "
    "<|channel> <channel|> <|tool_call> <tool_call|> <|\"|> <|turn> <|tool_response> "
    "<ifm|think> </ifm|think> <|START_THINKING|> <|END_THINKING|> <|CHATBOT_TOKEN|> <response> </response>"
).split()
"""Special tokens of the tokenizer: those of many formats, so that every parser finds its own."""

_XML = (
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nUlm\n</parameter>\n"
    "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"
)
_DSML = (
    '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="get_weather">\n'
    '<｜DSML｜parameter name="city" string="true">Ulm</｜DSML｜parameter>\n'
    '<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
)
CALLS = {
    "qwen3.Qwen3Parser": _XML,
    "nemotron_v3.NemotronV3Parser": _XML,
    "seed_oss.SeedOssParser": _XML.replace("tool_call>", "seed:tool_call>"),
    "glm47_moe.Glm47MoeParser": (
        "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Ulm</arg_value>\n"
        "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>"
    ),
    "minimax_m2.MinimaxM2Parser": (
        '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Ulm</parameter>\n'
        '<parameter name="days">3</parameter>\n</invoke>\n</minimax:tool_call>'
    ),
    "kimi_k2.KimiK2Parser": (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
        '{"city": "Ulm", "days": 3}<|tool_call_end|><|tool_calls_section_end|>'
    ),
    "deepseek_v4.DeepSeekV4Parser": _DSML,
    "gemma4.Gemma4Parser": '<|tool_call>call:get_weather{city:<|"|>Ulm<|"|>,days:3}<tool_call|>',
}
"""One call of each format, by module and class of its parser engine."""

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            },
        },
    }
]


def tokenizer() -> Any:
    """A byte-level tokenizer without merges, whose only longer tokens are the markers and olmo3's pieces."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "\u0120</", "</", "think", "<unk>"]
    model = models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=[], unk_token="<unk>")
    made = Tokenizer(model)
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(marker, special=True, normalized=False) for marker in MARKERS])
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>")


def strings(engine: Any, tok: Any) -> dict[str, list[str | None]]:
    """For each registered reasoning parser that this tokenizer suits: what starts and what ends reasoning."""
    found = {}
    for name, parser_class in reasoning_parsers(engine):
        try:
            parser = parser_class(tok)
        except Exception:  # it wants another tokenizer
            continue
        found[name] = [getattr(parser, f"reasoning_{which}_str", None) for which in ("start", "end")]
    return found


def configs(engine: Any, tok: Any) -> dict[str, list[list[int]] | None]:
    """For each of them: the token ids in the reasoning config of a user who gave none, or None."""
    module = engine.module("config")
    found: dict[str, list[list[int]] | None] = {}
    with tempfile.TemporaryDirectory() as folder:
        tok.save_pretrained(folder)
        # Without its constructor, which would want an architecture; only the tokenizer is asked for.
        model = module.ModelConfig.__new__(module.ModelConfig)
        for name, value in {
            "tokenizer": folder,
            "tokenizer_mode": "auto",
            "tokenizer_revision": None,
            "trust_remote_code": False,
            "skip_tokenizer_init": False,
            "runner_type": "generate",
        }.items():
            object.__setattr__(model, name, value)
        arguments = engine.module("engine.arg_utils").EngineArgs
        for name in strings(engine, tok):
            sizes = {"max_num_batched_tokens": 64, "max_num_seqs": 1}
            args = arguments(model=folder, reasoning_parser=name, **sizes)
            if hasattr(args, "_set_default_reasoning_config_args"):
                args._set_default_reasoning_config_args()
            else:
                args._set_default_max_num_seqs_and_batched_tokens_args(None, model)
            config = args.reasoning_config
            if config is not None:
                config.initialize_token_ids(model)
            ids = [getattr(config, f"reasoning_{which}_token_ids", None) for which in ("start", "end")]
            found[name] = ids if all(ids) else None
    return found


def reasoning_parsers(engine: Any) -> Iterator[tuple[str, type]]:
    manager = engine.module("reasoning").ReasoningParserManager
    for name in sorted({*manager.lazy_parsers, *manager.reasoning_parsers}):
        try:
            yield name, manager.get_reasoning_parser(name)
        except ImportError:  # it wants a package that this environment does not have
            continue


def stages(engine: Any, tok: Any) -> dict[str, dict[str, Any]]:
    """For each format, answer and tool choice: the strings of the adapter and the parser, and the calls."""
    if engine.source("parser.engine.parser_engine") is None:
        return {}
    protocol = engine.module("entrypoints.openai.chat_completion.protocol")
    adapters = engine.module("parser.engine.registered_adapters")
    found = {}
    for place, call in CALLS.items():
        module, _, name = place.partition(".")
        if engine.source(f"parser.{module}") is None:
            continue
        parser_class = getattr(engine.module(f"parser.{module}"), name)
        adapter_class = getattr(adapters, f"{name}ReasoningAdapter")
        for what, answer in answers(parser_class(tok).parser_engine_config, call).items():
            for choice in ("auto", "none"):
                request = protocol.ChatCompletionRequest(
                    model="m", messages=[{"role": "user", "content": "?"}], tools=TOOLS, tool_choice=choice
                )
                parser = parser_class(tok, request.tools)
                reasoning, content = parser.extract_reasoning(answer, request)
                mode = parser.skip_tool_parsing
                second = parser.extract_tool_calls_from_content(content or "", request)
                found[f"{name} {what} {choice}"] = {
                    "adapter": adapter_class(tok).extract_reasoning(answer, request),
                    "bare": [reasoning, content],
                    "mode": mode,
                    "second": calls(second.tool_calls),
                    "single": calls(parser_class(tok, request.tools).parse(answer, request, True)[2] or []),
                }
    return found


def answers(config: Any, call: str) -> dict[str, str]:
    """Answers with and without a call; ``config`` tells the markers and whether the prompt opens them."""
    marks = []
    for terminal in ("THINK_START", "THINK_END"):
        spelling = config.terminals.get(terminal) or ""
        marks.append(spelling if isinstance(spelling, str) else spelling[0])
    start, end = marks
    if config.initial_state.name == "REASONING":
        start = ""
    return {
        "plain": f"{start}Ok.{end}\n\nHello",
        "open": f"{start}Ok.",
        "call": f"{start}Ok.{end}\n\n{call}",
        "text-call": f"{start}Ok.{end}\n\nSure.\n{call}",
        "implicit": f"{start}Ok.\n{call}",
        "two": f"{start}Ok.{end}{call}\n{call}",
        "cut": f"{start}Ok.{end}{call[:-12]}",
    }


def calls(found: list[Any]) -> list[list[Any]]:
    functions = [getattr(call, "function", call) for call in found]
    return [[function.name, json.loads(function.arguments)] for function in functions]


def main(out: str) -> None:
    from engine_overlay import engines, importer

    engine = engines.installed()[0]
    # Every module that a patch has targets in, so that none is still waited for when they are undone.
    engine.module("engine.arg_utils")
    ledger = importer.overlay.ledgers[engine.name]
    for name in sorted(ledger.wanted_modules()):
        __import__(name)
    tok, seen = tokenizer(), {}
    for side in ("on", "off"):
        if side == "off":
            ledger.undo_all()
        budget = engine.source("config.reasoning") is not None
        seen[side] = {
            "strings": strings(engine, tok) if budget else {},
            "configs": configs(engine, tok) if budget else {},
            "stages": stages(engine, tok),
        }
    Path(out).write_text(json.dumps(seen, ensure_ascii=False, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
