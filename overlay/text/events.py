"""What a parser says of an answer, and what a request allows it to call."""

from __future__ import annotations

import enum
from typing import NamedTuple


class Kind(enum.Enum):
    """What an event adds to."""

    REASONING = "reasoning"
    CONTENT = "content"
    CALL = "a call begins"
    ARGUMENTS = "arguments"


class Event(NamedTuple):
    """``text``: of a CALL the tool's name, of ARGUMENTS the next characters of their JSON.

    ``index`` counts the calls from 0. ``call_id`` is the id that the model itself wrote, if its format has one.
    """

    kind: Kind
    text: str
    index: int = -1
    call_id: str | None = None


class Choice(enum.Enum):
    """The request's tool choice. With REQUIRED and NAMED an answer may be the JSON that guided decoding makes."""

    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"
    NAMED = "named"
