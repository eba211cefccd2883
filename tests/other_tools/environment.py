"""The environment in which the overlay is tried beside other tools: theirs, the overlay, and links to the engines'
dependencies.

    python -m tests.other_tools.environment           make or update it and print its interpreter
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import venv
from pathlib import Path

from engine_overlay.verify.releases import cache
from tests.live.environment import dependencies
from tests.matrix.environment import ROOT, digest

REQUIREMENTS = Path(__file__).with_name("requirements.txt")


def python() -> Path:
    """The interpreter of the environment, which is made first when it is missing or out of date."""
    folder = cache() / "other-tools"
    interpreter = folder / "bin" / "python"
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "other-tools.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        links = dependencies()
        hooks = [path for path in sorted((ROOT / "sitecustomize_hooks").iterdir()) if path.is_file()]
        wanted = digest(REQUIREMENTS, ROOT / "pyproject.toml", *hooks, text=ROOT)
        stamp = folder / "stamp"
        if not stamp.is_file() or stamp.read_text(encoding="utf-8") != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            venv.create(folder, with_pip=True)
            (folder / "lib/python3.11/site-packages/engine_dependencies.pth").write_text(f"{links}\n")
            pip = [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*pip, "--requirement", str(REQUIREMENTS)], check=True)
            subprocess.run([*pip, "--no-deps", "--editable", str(ROOT)], check=True)
            stamp.write_text(wanted, encoding="utf-8")
    return interpreter


if __name__ == "__main__":
    print(python())
