"""Models without weights whose tokenizers and chat templates have what the doctor looks for, one folder for each.

    python -m tests.doctor.models FOLDER

Runs where the ``tokenizers`` library is. The tokenizer is byte-level; of the markers some are tokens and some are not,
and the templates write calls as their makers' do.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.serving.tokens import _MODEL, SPECIAL

_TURNS = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}"
    "{% if m.role == 'tool' %}<tool_response>{% endif %}"
    "{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}CALL{% endfor %}"
    "{{ '<|im_end|>\\n' }}{% endfor %}"
)
_TOOLS = (
    "{% if tools %}{{ '<|im_start|>system\\n' }}{% for t in tools %}{{ t | tojson }}{% endfor %}<|im_end|>\n{% endif %}"
)
_ARGUMENT = (
    "{% for k, v in c.function.arguments.items() %}{{ 'OPEN' + k + 'MIDDLE' + (v if v is string else v | tojson)"
    " + 'CLOSE' }}{% endfor %}"
)


def _arguments(before: str, between: str, after: str) -> str:
    return _ARGUMENT.replace("OPEN", before).replace("MIDDLE", between).replace("CLOSE", after)


CALLS = {
    "hermes": (
        '{{ \'<tool_call>\\n{"name": "\' + c.function.name + \'", "arguments": \' }}{{ c.function.arguments | tojson }}'
        "{{ '}\\n</tool_call>' }}"
    ),
    "xml": (
        "{{ '<tool_call>\\n<function=' + c.function.name + '>\\n' }}"
        + _arguments("<parameter=", ">\\n", "\\n</parameter>\\n")
        + "{{ '</function>\\n</tool_call>' }}"
    ),
    "glm": (
        "{{ '<tool_call>' + c.function.name }}"
        + _arguments("<arg_key>", "</arg_key><arg_value>", "</arg_value>")
        + "{{ '</tool_call>' }}"
    ),
    "nobody": "{{ '@@' + c.function.name + '::' }}{{ c.function.arguments | tojson }}{{ '@@' }}",
}
"""How a template writes a call."""


def template(calls: str | None, *, thinks: bool) -> str:
    """A chat template that writes calls in this way, and opens reasoning in the prompt when the model ``thinks``."""
    written = (_TOOLS if calls else "") + _TURNS.replace("CALL", CALLS[calls] if calls else "")
    think = "<think>\n" if thinks else ""
    return written + "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}" + think + "{% endif %}"


THINK = ("<think>", "</think>")
CALL = ("<tool_call>", "</tool_call>")

MODELS = {
    # name of the folder: (template, added tokens, special tokens among them, config)
    "thinking-hermes": (template("hermes", thinks=True), (*THINK, *CALL), (), {}),
    "thinking-xml": (template("xml", thinks=True), (*THINK, *CALL), (), {}),
    "plain-xml": (template("xml", thinks=False), CALL, (), {}),
    "glm": (template("glm", thinks=True), (*THINK, *CALL), (), {}),
    "no-think-tokens": (template("xml", thinks=True), CALL, (), {}),
    "no-call-tokens": (template("xml", thinks=True), THINK, (), {}),
    "special-think": (template("xml", thinks=True), (*THINK, *CALL), THINK, {}),
    "nobodys-calls": (template("nobody", thinks=False), CALL, (), {}),
    "no-calls": (template(None, thinks=False), (), (), {}),
}


def make(folder: Path, chat_template: str, added: tuple[str, ...], special: tuple[str, ...], config: dict) -> None:
    """Write one model."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    folder.mkdir(parents=True, exist_ok=True)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={letter: n for n, letter in enumerate(letters)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in SPECIAL])
    for text in added:
        core.add_tokens([AddedToken(text, normalized=False, special=text in special)])
    core.save(str(folder / "tokenizer.json"))
    own = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "additional_special_tokens": list(special),
        "chat_template": chat_template,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(own), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(_MODEL | config), encoding="utf-8")


def make_all(folder: Path) -> None:
    for name, (chat_template, added, special, config) in MODELS.items():
        make(folder / name, chat_template, added, special, config)


if __name__ == "__main__":
    make_all(Path(sys.argv[1]))
