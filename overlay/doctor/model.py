"""The files of a model that say how it answers, in a folder or in the local cache; nothing is downloaded."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class NotHere(LookupError):
    """The model's files are not on this machine; carries one line."""


@dataclass(frozen=True, slots=True)
class Model:
    """``name`` as the user wrote it; ``place`` is the folder of its tokenizer.

    ``template`` is the chat template's source, None when the model has none.

    ``tokens`` are the added tokens of the tokenizer: text -> whether it is marked as special. ``vocabulary`` are its
    ordinary tokens, empty when the tokenizer is not in ``tokenizer.json``.
    """

    name: str
    folder: Path
    place: Path
    config: Mapping[str, Any]
    template: str | None
    tokens: Mapping[str, bool]
    vocabulary: frozenset[str] = field(default=frozenset(), repr=False)

    @property
    def model_type(self) -> str:
        return str(self.config.get("model_type") or "")

    @property
    def architectures(self) -> tuple[str, ...]:
        found = self.config.get("architectures") or ()
        return tuple(str(a) for a in found) if isinstance(found, list) else ()


def find(name: str, revision: str | None = None, environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of a model: a folder itself, or a snapshot in the local cache of Hugging Face. Raises NotHere."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise NotHere(f"{name} is neither a folder nor an id of the form organisation/name")
    home = environ.get("HF_HOME") or Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface"
    hub = Path(environ.get("HF_HUB_CACHE") or Path(home) / "hub")
    place = hub / f"models--{name.replace('/', '--')}"
    wanted = revision or "main"
    try:
        wanted = (place / "refs" / wanted).read_text(encoding="utf-8").strip()
    except OSError:
        pass  # a commit needs no reference
    snapshot = place / "snapshots" / wanted
    if (snapshot / "config.json").exists():
        return snapshot
    raise NotHere(f"{name} is not in the local cache {hub}, and the doctor downloads nothing")


def read(name: str, folder: Path, *, tokenizer: Path | None = None, template: str | None = None) -> Model:
    """The model in this folder; ``tokenizer`` is another folder for its tokenizer, ``template`` a template's source.

    A file that is missing or broken counts as empty. Raises NotHere for a folder without any of them.
    """
    config = _json(folder / "config.json")
    place = tokenizer or folder
    own = _json(place / "tokenizer_config.json")
    core = _json(place / "tokenizer.json")
    if not config and not own and not core:
        raise NotHere(f"{folder} has neither config.json nor a tokenizer")
    tokens: dict[str, bool] = {}
    entries = [*(core.get("added_tokens") or ()), *(own.get("added_tokens_decoder") or {}).values()]
    for entry in entries:
        if isinstance(entry, dict) and isinstance(entry.get("content"), str):
            tokens.setdefault(entry["content"], bool(entry.get("special")))
    inner = core.get("model") if isinstance(core.get("model"), dict) else {}
    vocabulary = inner.get("vocab")
    words = vocabulary if isinstance(vocabulary, dict) else {}
    return Model(name, folder, place, config, template or _template(place, own), tokens, frozenset(words))


def _template(folder: Path, own: Mapping[str, Any]) -> str | None:
    try:
        return (folder / "chat_template.jinja").read_text(encoding="utf-8")
    except OSError:
        pass
    found = _json(folder / "chat_template.json").get("chat_template") or own.get("chat_template")
    if isinstance(found, list):
        # Several by name: the one for tools is what a request with tools gets.
        named = {t.get("name"): t.get("template") for t in found if isinstance(t, dict)}
        found = named.get("tool_use") or named.get("default")
    return found if isinstance(found, str) else None


def _json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
