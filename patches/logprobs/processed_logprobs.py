"""Return log-probabilities of the distribution that was sampled from, unless the user chose otherwise.

Symptom: a trainer that compares its own log-probabilities at temperature 0.7 with the engine's finds a mean
ratio of 1.38 and a clip rate of 0.84 where both models are the same; with top-p and top-k 1.71 and 0.85.

Cause: ``logprobs_mode`` is "raw_logprobs" by default: the log-probabilities of the logits before temperature,
penalties, min-p, top-k and top-p. V0 returned those behind them.

Change: the default of ``logprobs_mode`` becomes "processed_logprobs", for keyword arguments and for the command
line. A value that the user wrote (``--logprobs-mode``, a config file, a keyword) is left alone. Subclasses of
``EngineArgs`` that are made later have the new default too.

Risk: whoever asks for ``logprobs`` sees other numbers, and -inf for tokens outside the kept set (over HTTP
-9999.0); the engine's fused top-k and top-p sampling is not used for them, which costs speed. Log-probabilities of the
prompt stay raw. A trainer must apply the same temperature, penalties and filters.
"""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Mapping
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import ABSENT, Finding, Outcome, Patch, Range, Target

_INIT = "engine.arg_utils:EngineArgs.__init__"
_ASYNC_INIT = "engine.arg_utils:AsyncEngineArgs.__init__"
_SUBCLASS = "engine.arg_utils:EngineArgs.__init_subclass__"
_CLI = "engine.arg_utils:get_kwargs"

PATCH = Patch(
    id="processed_logprobs",
    engines={"vllm": Range("0.18.0", "0.33.0"), "aphrodite": Range("0.20.0", "0.24.1")},
    targets=(
        # Both are made by @dataclass, each with the defaults of its own class.
        Target(path=_INIT, bodies=(ABSENT,)),
        Target(path=_ASYNC_INIT, bodies=(ABSENT,)),
        Target(path=_SUBCLASS, bodies=(ABSENT,)),
        Target(path=_CLI, bodies=("802cd9b2ec84",)),
    ),
    reads=(
        Target(path="engine.arg_utils:EngineArgs.logprobs_mode", bodies=("3df4c220d45d",)),
        Target(path="config.model:ModelConfig.logprobs_mode", bodies=("03b6c7a16eba",)),
        # Passes every parsed argument on as if it had been given.
        Target(path="engine.arg_utils:EngineArgs.from_cli_args", bodies=("67701e9a5827",)),
    ),
    upstream=(),
    relationship="different approach",
    introduced_in={"vllm": "0.18.0", "aphrodite": "0.20.0"},
    fixed_in={"vllm": None, "aphrodite": None},
    superseded_by=None,
    group=None,
    requires=(),
    conflicts=(),
    after=(),
    default=False,
    default_reason="raw log-probabilities are what other users expect",
    scope=("config",),
    native_alternative="--logprobs-mode processed_logprobs",
    remove_when="the engine's default is processed_logprobs",
)

FIELD, VALUE = "logprobs_mode", "processed_logprobs"


def probe(engine: Engine) -> Finding:
    """Ask for the default of a keyword argument and of the command line."""
    module = engine.module("engine.arg_utils")
    with tempfile.TemporaryDirectory(prefix="engine-overlay-") as folder:
        keyword = getattr(module.AsyncEngineArgs(model=folder), FIELD)
    line = module.get_kwargs(engine.module("config").ModelConfig)[FIELD]["default"]
    seen = f"without a value logprobs_mode is {keyword!r} by keyword and {line!r} by command line"
    return Finding(Outcome.ABSENT if keyword == line == VALUE else Outcome.PRESENT, seen)


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    stock_kwargs = originals[_CLI]

    def filling(stock: Any) -> Any:
        # The place of the field among the positional arguments, of which `self` is the first.
        place = list(inspect.signature(stock).parameters).index(FIELD)

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            if FIELD not in kwargs and len(args) < place:
                kwargs[FIELD] = VALUE
            stock(self, *args, **kwargs)

        return __init__

    def __init_subclass__(cls: type, **kwargs: Any) -> None:
        super(engine.module("engine.arg_utils").EngineArgs, cls).__init_subclass__(**kwargs)
        own = vars(cls).get("__annotations__", {})
        if FIELD not in own:
            # As if the class had written it itself, so that its own @dataclass takes it up.
            cls.__annotations__ = {**own, FIELD: "str"}
            setattr(cls, FIELD, VALUE)

    def get_kwargs(cls: Any, *args: Any, **kwargs: Any) -> Any:
        found = stock_kwargs(cls, *args, **kwargs)
        if cls is engine.module("config").ModelConfig and FIELD in found:
            found[FIELD]["default"] = VALUE
        return found

    return {
        _INIT: filling(originals[_INIT]),
        _ASYNC_INIT: filling(originals[_ASYNC_INIT]),
        _SUBCLASS: classmethod(__init_subclass__),
        _CLI: get_kwargs,
    }
