"""Drafts behind a spelled end through the engine's own structured output manager and xgrammar.

    python -m tests.budget.drafts OUT

Writes what the mask of each row allows, and what becomes of the grammar when the drafts have been accepted.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

DRAFTS = ("</", "think", ">", "{")
WATCHED = ("Hm", "{", "}")


def run(engine: Any) -> dict[str, Any]:
    """``{"rows": [allowed pieces of WATCHED], "ended", "after": allowed pieces at the next step}``."""
    import torch

    from engine_overlay.text import gate

    manager, request, step = gate.bare(engine)
    vocabulary = manager.tokenizer.get_vocab()
    config = SimpleNamespace(
        speculative_config=SimpleNamespace(num_speculative_tokens=len(DRAFTS)),
        num_speculative_tokens=len(DRAFTS),
        structured_outputs_config=SimpleNamespace(disable_any_whitespace=True, backend="xgrammar"),
        scheduler_config=SimpleNamespace(max_num_seqs=2),
        model_config=SimpleNamespace(is_diffusion=False, hf_config=SimpleNamespace(model_type="qwen3")),
    )
    setattr(manager, f"{engine.name}_config", config)
    backend_class = engine.module("v1.structured_output.backend_xgrammar").XgrammarBackend
    manager.backend = backend_class(config, tokenizer=manager.tokenizer, vocab_size=len(vocabulary))
    manager._grammar_bitmask, manager._full_mask = None, torch.tensor(-1, dtype=torch.int32)
    manager.fill_bitmask_parallel_threshold = 1000
    structured = request.structured_output_request
    options = engine.module("v1.structured_output.backend_types").StructuredOutputOptions
    schema = json.dumps({"type": "object", "additionalProperties": False})
    structured.grammar = manager.backend.compile_grammar(options.JSON, schema)

    def masks(drafts: tuple[str, ...]) -> list[list[str]]:
        scheduled = {"r": [vocabulary[piece] for piece in drafts]} if drafts else {}
        rows = manager.grammar_bitmask({"r": request}, ["r"], scheduled)[: len(drafts) + 1]
        return [[piece for piece in WATCHED if int(row[0]) >> vocabulary[piece] & 1] for row in rows]

    def accepted(*pieces: str) -> None:
        ids = step(*pieces)
        if hasattr(manager, "accept_tokens"):
            assert manager.accept_tokens(request, ids)
        elif manager.should_advance(request):
            assert structured.grammar.accept_tokens("r", ids)

    accepted("Hm", ".")
    rows = masks(DRAFTS)
    accepted(*DRAFTS)
    return {"rows": rows, "ended": structured.reasoning_ended, "after": masks(())[0]}


def main(out: str) -> None:
    from engine_overlay import engines, importer

    (engine,) = engines.installed()
    __import__(engine.name)
    engine.module("v1.structured_output")
    seen = {"on": run(engine)}
    importer.overlay.ledgers[engine.name].undo_all()
    seen["off"] = run(engine)
    Path(out).write_text(json.dumps(seen), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
