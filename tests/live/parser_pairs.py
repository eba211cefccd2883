"""The engine's own API server, with an app of its own for each of several pairs of parsers.

    python parser_pairs.py 'qwen3+hermes kimi_k2+kimi_k2' <arguments of the API server>

Runs in the engine's environment. One engine serves all apps; each is built and filled by the engine's own code
from the arguments that a server of this pair alone would have, and mounted under ``/<pair>``. A pair is
``reasoning+tool``, either side may be empty.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import sys
from typing import Any

from vllm.entrypoints.launchers.api_server import entry


def main() -> None:
    pairs = sys.argv.pop(1).split()
    serve_http = entry.serve_http

    async def serve_all(app: Any, **settings: Any) -> Any:
        state = app.state
        tasks = await state.engine_client.get_supported_tasks()
        for pair in pairs:
            arguments = _arguments(state.args, *pair.split("+"))
            mounted = entry.build_app(arguments, tasks, state.engine_client.model_config)
            await entry.init_app_state(state.engine_client, mounted.state, arguments, tasks)
            app.mount(f"/{pair}", mounted)
        return await serve_http(app, **settings)

    entry.serve_http = serve_all
    entry.main()


def _arguments(given: argparse.Namespace, reasoning: str, tools: str) -> argparse.Namespace:
    arguments = copy.copy(given)
    arguments.reasoning_parser = reasoning
    arguments.structured_outputs_config = dataclasses.replace(
        given.structured_outputs_config, reasoning_parser=reasoning
    )
    arguments.tool_call_parser = tools or None
    arguments.enable_auto_tool_choice = bool(tools)
    return arguments


if __name__ == "__main__":
    main()
