"""What the serving code is given in place of its parsers: objects that hand out what a text carries."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

from engine_overlay.serving.wire import Whole


class StandInReasoning:
    """In place of a reasoning parser: says all there is to say itself, so that no gate to a tool parser is passed."""

    reasoning_start_str = reasoning_end_str = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def is_reasoning_end(self, input_ids: Any) -> bool:
        return False

    def is_reasoning_end_streaming(self, input_ids: Any, delta_ids: Any) -> bool:
        return False

    def extract_content_ids(self, input_ids: Any) -> list[int]:
        return []

    def extract_reasoning_streaming(
        self, previous_text: Any, current_text: Any, delta_text: Any, *args: Any, **kwargs: Any
    ) -> Any:
        return delta_text.parsed

    def extract_reasoning(self, model_output: Any, request: Any) -> tuple[str | None, Any]:
        return model_output.parsed.reasoning, model_output


class StandInParser:
    """In place of a unified parser, or of its class."""

    reasoning_parser_cls = StandInReasoning
    reasoning_parser = tool_parser = tool_parser_cls = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._stream_state = SimpleNamespace()

    def parse_delta(self, delta_text: Any, *args: Any, **kwargs: Any) -> Any:
        return delta_text.parsed


class Settler:
    """Hands the whole answers of one chat request to the serving code, one for each choice.

    The serving code goes by the request: with a tool choice that forces a call it drops the content and says
    ``tool_calls`` also where there is no call. ``request`` is a copy that asks for a call only where there is one.
    """

    def __init__(self, request: Any) -> None:
        self.request = copy.copy(request)
        self._choice = request.tool_choice

    def settle(self, whole: Whole) -> tuple[list[Any] | None, str | None]:
        """(calls, content) of the choice at hand."""
        keep = whole.calls or self._choice in (None, "auto")
        self.request.tool_choice = self._choice if keep else "none"
        return whole.calls or None, whole.content

    def parse(self, model_output: Any, *args: Any, **kwargs: Any) -> tuple[str | None, str | None, list[Any] | None]:
        """In place of the ``parse`` of a unified parser."""
        calls, content = self.settle(model_output.parsed)
        return model_output.parsed.reasoning, content, calls

    def parse_tool_calls(self, *, content: Any, **kwargs: Any) -> tuple[list[Any] | None, str | None]:
        """In place of ``OpenAIServing._parse_tool_calls_from_content``, behind a :class:`StandInReasoning`."""
        return self.settle(content.parsed)


def shadow(serving: Any, **attributes: Any) -> Any:
    """The serving object once more, with other attributes; what it refers to is shared."""
    made = object.__new__(type(serving))
    made.__dict__.update(serving.__dict__, **attributes)
    return made
