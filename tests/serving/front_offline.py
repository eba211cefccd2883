"""A program that uses a release as a library: one chat with ``LLM``, and what the overlay says of this process.

python -m tests.serving.front_offline TEXT
"""

from __future__ import annotations

import json
import sys

MARK = "FOUND "


def main(text: str) -> None:
    from vllm import LLM, SamplingParams
    from vllm.model_executor.models import registry

    from engine_overlay import status
    from tests.serving import fronts, one, scripted_core
    from tests.serving.front_executor import Scripted

    scripted_core.describe_models(registry)
    model = LLM(str(one.model_folder()), distributed_executor_backend=Scripted, max_model_len=4096, seed=0)
    asked = SamplingParams(max_tokens=400, temperature=0, extra_args=fronts.script(text))
    (found,) = model.chat([{"role": "user", "content": "x"}], asked, use_tqdm=False)
    patches = {p["id"]: [p["state"], p["path"]] for p in status.report()["patches"] if p["verdict"] == "apply"}
    print(MARK + json.dumps({"text": found.outputs[0].text, "patches": patches}))


if __name__ == "__main__":
    main(sys.argv[1])
