"""The engine releases in range, and their Python sources in the cache.

    python -m engine_overlay.verify.releases              fetch every pinned release that the cache does not hold
    python -m engine_overlay.verify.releases --refresh    ask the package index for later releases and pin them

The pinned list is releases.json; tests and CI use it as it stands. Sources come from the released wheels by
the ordinary pip client; only what the parsers and the serving layer need is kept, some tens of MB per
release.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

LIST = Path(__file__).with_name("releases.json")
FLOOR = {"vllm": "0.18.0", "aphrodite-engine": "0.20.0"}
PACKAGE = {"vllm": "vllm", "aphrodite-engine": "aphrodite"}

_KEPT = re.compile(
    r"\.(py|pyi|jinja|typed)$|\.dist-info/(METADATA|RECORD|WHEEL|entry_points\.txt|top_level\.txt)$"
)
# The wheels are Linux builds for several C libraries; their compiled parts are not kept, so any of them
# will do.
_PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (39, 35, 34, 31, 28, 24, 17)] + [
    "manylinux1_x86_64"
]
_SPLIT = re.compile(r"[-_.]+")


def cache() -> Path:
    """The folder for everything that is fetched or computed: ``OVERLAY_CACHE``, else
    ``~/.cache/engine-overlay``.
    """
    chosen = os.environ.get("OVERLAY_CACHE")
    return Path(chosen).expanduser().resolve() if chosen else Path.home() / ".cache" / "engine-overlay"


@dataclass(frozen=True, order=True)
class Release:
    """One release of one engine distribution."""

    distribution: str
    version: str

    @property
    def engine(self) -> str:
        """The name of the package that is imported."""
        return PACKAGE[self.distribution]

    @property
    def label(self) -> str:
        return f"{_SPLIT.sub('_', self.distribution)}-{self.version}"

    @property
    def has_parser_engine(self) -> bool:
        """Whether the release parses answers with ``parser/engine/``; earlier ones have only legacy
        parsers.
        """
        first = {"vllm": "0.24.0", "aphrodite-engine": "0.22.0"}[self.distribution]
        return Version(self.version) >= Version(first)

    @property
    def sources(self) -> Path:
        return cache() / "sources" / self.label


def pinned() -> list[Release]:
    """The releases of releases.json, vllm first, oldest first."""
    listed = json.loads(LIST.read_text(encoding="utf-8"))
    return [Release(distribution, version) for distribution in FLOOR for version in listed[distribution]]


def named(label: str) -> Release:
    """The pinned release with this label. Raises LookupError that names the nearest one."""
    import difflib

    known = {release.label: release for release in pinned()}
    wanted = label.replace("aphrodite-engine", "aphrodite_engine")
    if wanted in known:
        return known[wanted]
    near = difflib.get_close_matches(wanted, known, 1, 0.0)[0]
    raise LookupError(f"there is no pinned release {label!r}; did you mean {near!r}?")


def selected(labels: str | None) -> list[Release]:
    """The releases of a comma-separated list of labels, or all. Raises LookupError as :func:`named`."""
    return [named(label) for label in labels.split(",")] if labels else pinned()


def fetch(release: Release) -> Path:
    """The folder with the release's sources, downloaded when the cache does not hold it.

    Raises subprocess.CalledProcessError when pip finds no such wheel.
    """
    target = release.sources
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetching-") as folder:
        wheel = download(release, Path(folder))
        out = Path(folder) / "out"
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if _KEPT.search(name):
                    archive.extract(name, out)
        try:
            # The name appears only when everything is there, so a broken fetch is not taken for a cached
            # one.
            out.rename(target)
        except OSError:
            if not target.is_dir():
                raise
            shutil.rmtree(out)
    return target


def download(release: Release, folder: Path) -> Path:
    platforms = [argument for platform in _PLATFORMS for argument in ("--platform", platform)]
    requirement = f"{release.distribution}=={release.version}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += [
        "--no-cache-dir",
        "--python-version",
        "3.11",
        *platforms,
        "--dest",
        str(folder),
        requirement,
    ]
    subprocess.run(command, check=True)
    return next(folder.glob("*.whl"))


def fetch_all(chosen: list[Release], at_once: int = 4) -> None:
    """Fetch all of them, some at a time: a wheel has up to 430 MB and one connection does not fill the
    line.
    """
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(fetch, chosen))


def published(distribution: str) -> list[str]:
    """The released versions from the floor on that the package index knows, oldest first."""
    command = [sys.executable, "-m", "pip", "index", "versions", distribution]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    listed = re.search(r"^Available versions: (.*)$", answer, re.MULTILINE)
    versions = []
    for text in listed.group(1).split(", ") if listed else ():
        try:
            version = Version(text)
        except InvalidVersion:
            continue
        if not version.is_prerelease and not version.local and version >= Version(FLOOR[distribution]):
            versions.append(version)
    return [str(version) for version in sorted(versions)]


def refresh() -> list[Release]:
    """Pin what the index has beyond the list; returns the new releases. A pinned one is never dropped."""
    listed = json.loads(LIST.read_text(encoding="utf-8"))
    new = []
    for distribution in FLOOR:
        later = [version for version in published(distribution) if version not in listed[distribution]]
        listed[distribution] = sorted([*listed[distribution], *later], key=Version)
        new += [Release(distribution, version) for version in later]
    if new:
        LIST.write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")
    return new


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m engine_overlay.verify.releases", description=__doc__.partition("\n")[0]
    )
    parser.add_argument(
        "--refresh", action="store_true", help="add releases that the package index has beyond the list"
    )
    parser.add_argument(
        "--only", metavar="LABELS", help="fetch only these, like vllm-0.33.0,aphrodite_engine-0.24.1"
    )
    options = parser.parse_args(arguments)
    if options.refresh:
        for release in refresh():
            print(f"pinned {release.label}")
    chosen = selected(options.only)
    missing = [release for release in chosen if not release.sources.is_dir()]
    fetch_all(missing)
    print(f"{len(chosen)} releases in the cache, {len(missing)} of them fetched now")
    return 0


if __name__ == "__main__":
    sys.exit(main())
