"""A command line without its secrets, so that no key gets into a file or an answer.

An option is known as a secret by the last word of its name: ``--api-key``, ``--hf-token``, ``--ssl-keyfile-password``,
but not ``--tokenizer`` or ``--max-num-batched-tokens``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

HIDDEN = "***"

_WORD = r"(?:api[-_]?keys?|key|token|secret|password|passwd|passphrase|credentials?)"
_OPTION = re.compile(rf"--?(?:[\w.-]*[-_.])?{_WORD}|--api[-_]k(?:ey?)?", re.IGNORECASE)
_SEVERAL = re.compile(r"--api[-_]k(?:eys?|e)?", re.IGNORECASE)
"""The engine's own option takes any number of keys, and may be cut short."""

# Quotes of JSON, of Python and of a shell, also escaped ones.
_QUOTE = r"\\*[\"']?"
_NAMED = r"(?:(?:api|access|secret|private|auth)[-_]?keys?|token|secret|password|passwd|passphrase|credentials?)"
_PAIR = re.compile(
    rf"((?<![a-z0-9]){_NAMED}{_QUOTE}\s*[:=]\s*{_QUOTE})([^\s\"',;&}}\]\\]+)", re.IGNORECASE
)
_SPELLED = re.compile(rf"(--(?:[\w.-]{{0,60}}[-_.])?{_NAMED}{_QUOTE}\s+{_QUOTE})(?!--)([^\s\"';&|\\]+)", re.IGNORECASE)
"""An option and its value within one word, as ``sh -c`` has it."""
_BEARER = re.compile(r"(\b(?:bearer|basic)\s+)[^\s\"',]+", re.IGNORECASE)
_LOGIN = re.compile(r"([a-z][a-z0-9+.-]{0,20}://)[^\s/@]+@", re.IGNORECASE)
_LOOKS = re.compile(r"\b(?:sk-[\w-]{8,}|hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|AKIA[A-Z0-9]{16})")


def words(argv: Iterable[object]) -> list[str]:
    """The words of a command line, with ``***`` for what is, or may be, a secret."""
    found: list[str] = []
    hidden, several = "", False
    for word in map(str, argv):
        if hidden and not word.startswith(hidden):
            found.append(HIDDEN)
            # A key may start with a dash; what comes after one with a dash is the next option.
            hidden = "-" if several else ""
            continue
        name, equals, _ = word.partition("=")
        secret = _OPTION.fullmatch(name) is not None
        found.append(f"{name}={HIDDEN}" if secret and equals else text(word))
        several = secret and _SEVERAL.fullmatch(name) is not None
        hidden = "--" if secret and not equals else ""
    return found


def text(word: str) -> str:
    """One word, or any text, without the secrets that name themselves in it."""
    word = _PAIR.sub(rf"\1{HIDDEN}", word)
    word = _SPELLED.sub(rf"\1{HIDDEN}", word)
    word = _BEARER.sub(rf"\1{HIDDEN}", word)
    word = _LOGIN.sub(rf"\1{HIDDEN}@", word)
    return _LOOKS.sub(HIDDEN, word)
