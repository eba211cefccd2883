"""The environment of a user who installed ``engine-overlay[rl]`` beside the released engine.

    python -m tests.live_rl.environment         make or refresh it, print its interpreter
"""

from __future__ import annotations

import shutil
import tempfile
import venv
from pathlib import Path

from tests.live import environment as live


def prepare() -> Path:
    """Make or refresh it; return its interpreter. Raises RuntimeError with pip's last words."""
    stock = live.prepare(overlay=False)
    folder = live.cache() / "live-rl"
    python = folder / "bin" / "python"
    with live._alone():
        if not python.is_file():
            shutil.rmtree(folder, ignore_errors=True)
            venv.create(folder, with_pip=True)
        # The engine is seen where it is, so that it is not fetched a second time.
        places = [live.dependencies(), next((stock.parent.parent / "lib").glob("python3.*/site-packages"))]
        own = folder / "lib" / "python3.11" / "site-packages"
        (own / "live_dependencies.pth").write_text("".join(f"{place}\n" for place in places))
        digest = live.checkout_digest()
        if live._read(folder / "overlay.stamp") != digest:
            (folder / "overlay.stamp").unlink(missing_ok=True)
            with tempfile.TemporaryDirectory() as copy:
                for file in live._packaged_files():
                    target = Path(copy) / file.relative_to(live.CHECKOUT)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(file, target)
                live._pip(python, "uninstall", "--yes", "engine-overlay")
                live._pip(python, "install", ".[rl]", cwd=copy)
            (folder / "overlay.stamp").write_text(digest)
    return python


if __name__ == "__main__":
    print(prepare())
