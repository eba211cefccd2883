"""Run the three settings one after the other, each in a process of its own, and draw their curves."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from examples.grpo_parity import loop, plot


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.grpo_parity", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("grpo-parity.png"), help="the picture; numbers go beside it")
    parser.add_argument("--settings", nargs="+", choices=loop.SETTINGS, default=list(loop.SETTINGS))
    loop.options(parser)
    args = parser.parse_args()
    passed = [
        part
        for name in ("steps", "prompts", "group", "tokens", "rate", "objective")
        for part in (f"--{name}", str(getattr(args, name)))
    ]
    variables = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        for setting in args.settings:
            answer = Path(folder) / f"{setting}.json"
            command = [sys.executable, "-m", "examples.grpo_parity.loop", setting, str(answer), *passed]
            done = subprocess.run(command, env=variables | dict(os.environ), check=False)
            if done.returncode:
                print(f"grpo_parity: the run {setting} ended with {done.returncode}; see above", file=sys.stderr)
                return 1
            runs.append(json.loads(answer.read_text()))
    for run in runs:
        run["steps"] = [{key: float(f"{value:.4g}") for key, value in step.items()} for step in run["steps"]]
    lines = ",\n".join(json.dumps(run) for run in runs)
    args.out.with_suffix(".json").write_text(f"[{lines}]\n")
    plot.draw(runs, args.out)
    for run in runs:
        last = run["steps"][-5:]
        ends = {key: sum(s[key] for s in last) / len(last) for key in ("reward", "ratio_new_old", "clip_rate_ppo")}
        print(run["setting"], {key: round(value, 4) for key, value in ends.items()}, f"{run['seconds']:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
