"""The trainer's side: log-probabilities of given tokens by transformers, at processed-logits semantics. Needs torch.

The order is the engines': logits in float32, divided by the temperature, all but the top k masked, then the smallest
set that holds probability p kept, then log-softmax. Penalties, min-p and bias are not recomputed.
"""

from __future__ import annotations

import inspect
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

DTYPES = ("auto", "float32", "bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class Sampling:
    """What a token was sampled with: temperature (0 is greedy and counts as 1), top_k (0 or -1: all), top_p in (0, 1].

    Raises ValueError for a value that no engine takes.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError(f"temperature is {self.temperature}; 0 or more is wanted")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top-p is {self.top_p}; above 0 and at most 1 is wanted")
        if self.top_k < -1:
            raise ValueError(f"top-k is {self.top_k}; a number of tokens, or -1 for all, is wanted")

    @property
    def filters(self) -> bool:
        return self.top_p < 1 or self.top_k > 0


@dataclass(frozen=True, slots=True)
class Scores:
    """Per sequence, one list of T numbers each, in nats.

    ``processed``: of the distribution sampled from (-inf where the trainer's own filter drops the token);
    ``temperature``: temperature only; ``raw``: the model's own; ``entropy``: exact, of the processed distribution.
    """

    processed: list[list[float]]
    temperature: list[list[float]]
    raw: list[list[float]]
    entropy: list[list[float]]


def processed(logits: Any, sampling: Sampling) -> Any:
    """Logits (..., V) as the engine samples from them: float32, -inf where filtered. Gradients go through."""
    import torch

    logits = logits.float()
    # Engines treat a greedy row's temperature as 1 and filter nothing there.
    if sampling.temperature < 1e-5:
        return logits
    logits = logits / sampling.temperature
    if not sampling.filters:
        return logits
    with torch.no_grad():
        ordered, index = logits.sort(dim=-1)
        size = ordered.shape[-1]
        if 0 < sampling.top_k < size:
            least = ordered[..., size - sampling.top_k, None]
            ordered = ordered.masked_fill(ordered < least, -math.inf)
        if sampling.top_p < 1:
            # Summed from the small end, as the engines do: rounding decides which token is the last one kept.
            out = ordered.softmax(dim=-1).cumsum(dim=-1) <= 1 - sampling.top_p
            out[..., -1] = False
            ordered = ordered.masked_fill(out, -math.inf)
        dropped = torch.empty_like(ordered, dtype=torch.bool).scatter_(-1, index, ordered.isneginf())
    return logits.masked_fill(dropped, -math.inf)


def of_tokens(logits: Any, tokens: Any) -> Any:
    """Log-probabilities of ``tokens`` (...,) under ``logits`` (..., V); float32."""
    import torch

    return torch.log_softmax(logits.float(), dim=-1).gather(-1, tokens[..., None])[..., 0]


def load(folder: str, *, dtype: str = "auto", fp32_head: bool = True, device: str | None = None) -> Any:
    """A causal model from ``folder`` in eval mode, its output head in float32 when ``fp32_head``.

    ``dtype``: one of :data:`DTYPES`; ``device``: cuda when there is one, by default. Raises OSError or ValueError as
    transformers does.
    """
    import torch
    from transformers import AutoModelForCausalLM

    if dtype not in DTYPES:
        raise ValueError(f"dtype is {dtype}; one of {', '.join(DTYPES)} is wanted")
    kind = "auto" if dtype == "auto" else getattr(torch, dtype)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=kind)
    model.to(device or ("cuda" if torch.cuda.is_available() else "cpu")).eval()
    if fp32_head:
        widen_head(model)
    return model


def widen_head(model: Any) -> None:
    """Compute ``model``'s logits in float32 from its hidden states; the body and tied embeddings stay as they are."""
    import torch

    head = model.get_output_embeddings()
    if head.weight.dtype == torch.float32:
        return
    # A parameter of its own: a tied one would widen the input embedding, and with it the body.
    head.weight = torch.nn.Parameter(head.weight.detach().float(), requires_grad=head.weight.requires_grad)
    if getattr(head, "bias", None) is not None:
        head.bias = torch.nn.Parameter(head.bias.detach().float(), requires_grad=head.bias.requires_grad)
    head.register_forward_pre_hook(lambda _, args: (args[0].float(), *args[1:]))


def logits_of(model: Any, ids: Any, count: int) -> Any:
    """Logits (B, count, V) that predict the last ``count`` tokens of ``ids`` (B, L); none of the rows is padded."""
    kept = {"logits_to_keep": count + 1} if "logits_to_keep" in inspect.signature(model.forward).parameters else {}
    return model(input_ids=ids, **kept).logits[:, -count - 1 : -1]


def score(
    model: Any, sequences: Sequence[tuple[Sequence[int], Sequence[int]]], sampling: Sampling, *, batch: int = 8
) -> Scores:
    """Log-probabilities of each sequence's completion: ``sequences`` are (prompt ids, completion ids).

    Sequences of equal lengths share a forward pass of at most ``batch`` rows; nothing is padded, so padding cannot
    change a number. An empty completion has empty lists. Raises ValueError for an empty prompt or an id outside the
    vocabulary.
    """
    import torch

    device = next(model.parameters()).device
    size = model.get_input_embeddings().weight.shape[0]
    alike: dict[tuple[int, int], list[int]] = defaultdict(list)
    for i, (prompt, completion) in enumerate(sequences):
        if not prompt:
            raise ValueError(f"sequence {i} has an empty prompt")
        if max([*prompt, *completion]) >= size or min([*prompt, *completion]) < 0:
            raise ValueError(f"sequence {i} has a token id that the trainer's vocabulary of {size} does not have")
        alike[len(prompt), len(completion)].append(i)
    found: list[list[list[float]]] = [[[] for _ in sequences] for _ in range(4)]
    for (_, count), members in alike.items():
        for start in range(0, len(members) if count else 0, batch):
            rows = members[start : start + batch]
            ids = torch.tensor([[*sequences[i][0], *sequences[i][1]] for i in rows], device=device)
            with torch.no_grad():
                logits = logits_of(model, ids, count).float()
                tokens = ids[:, -count:]
                filtered = processed(logits, sampling)
                p = filtered.softmax(dim=-1)
                parts = [
                    of_tokens(filtered, tokens),
                    of_tokens(processed(logits, Sampling(sampling.temperature)), tokens),
                    of_tokens(logits, tokens),
                    torch.special.entr(p).sum(dim=-1),
                ]
            for part, numbers in zip(found, parts, strict=True):
                for i, row in zip(rows, numbers.cpu().tolist(), strict=True):
                    part[i] = row
    return Scores(*found)
