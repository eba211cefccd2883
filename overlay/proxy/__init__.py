"""The stray-tag filter: as ASGI middleware in an engine's own server, and as a reverse proxy before any server.

    vllm serve MODEL --middleware engine_overlay.proxy.StrayTagFilter
    engine-overlay proxy --upstream http://127.0.0.1:8000
"""

from engine_overlay.proxy.middleware import StrayTagFilter

__all__ = ["StrayTagFilter"]
