"""The compiled front end of a release, out of its wheel: the one file that the sources in the cache do not have."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path

from engine_overlay.verify import releases


def fetch(release: releases.Release) -> Path:
    """The program ``vllm-rs`` of this release, downloaded when the cache does not hold it.

    Raises subprocess.CalledProcessError when pip finds no such wheel.
    """
    name = f"{release.engine}-rs"
    target = releases.cache() / "front-ends" / release.label / name
    if target.is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetching-") as folder:
        with zipfile.ZipFile(releases.download(release, Path(folder))) as wheel:
            found = Path(wheel.extract(f"{release.engine}/{name}", folder))
        found.chmod(0o755)
        # The name appears only when the file is whole.
        found.replace(target)
    return target
