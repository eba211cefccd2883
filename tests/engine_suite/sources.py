"""The engines' own tests, out of their source distributions, in the cache.

python -m tests.engine_suite.sources        fetch what the cache does not hold
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from engine_overlay.verify.releases import Release, cache, named

RELEASES = ("vllm-0.33.0", "vllm-0.24.0", "vllm-0.23.0")
"""The newest, the first with a parser engine, and the last without one. Not where all is run: the newest."""
_FOLDERS = ("tests/reasoning", "tests/tool_parsers")


def folders(release: Release) -> tuple[str, ...]:
    """What is run. The rest of ``tests`` is kept too, because conftest.py and the helpers import from it."""
    return ("tests/parser/engine" if release.has_parser_engine else "tests/parser", *_FOLDERS)


_BACKEND = Path(__file__).with_name("metadata_only")
_MEMBERS = ("tests/", "pyproject.toml")


def suite(release: Release) -> Path:
    """The folder that holds the release's ``tests``, downloaded by pip when the cache does not hold it.

    Raises subprocess.CalledProcessError when pip finds no such source distribution.
    """
    target = cache() / "suites" / release.label
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetching-") as folder:
        out = Path(folder) / "out"
        with tarfile.open(_download(release, Path(folder))) as archive:
            root = archive.next().name.split("/")[0]
            for member in archive.getmembers():
                name = member.name.removeprefix(f"{root}/")
                if member.isfile() and name.startswith(_MEMBERS):
                    member.name = name
                    archive.extract(member, out, **_SAFELY)
        # The name appears only when everything is there, so a broken fetch is not taken for a cached one.
        out.rename(target)
    return target


# Without a filter Python 3.12 warns; early patch releases of 3.10 and 3.11 do not know the word.
_SAFELY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


def _download(release: Release, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--no-cache-dir", "--no-build-isolation", "--no-binary", release.distribution]
    subprocess.run(
        [*command, "--dest", str(folder), f"{release.distribution}=={release.version}"],
        check=True,
        env={**os.environ, "PYTHONPATH": str(_BACKEND)},
    )
    return next(folder.glob("*.tar.gz"))


def main() -> int:
    """Fetch the suites of all RELEASES and print where they are."""
    for label in RELEASES:
        print(suite(named(label)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
