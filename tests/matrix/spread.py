"""Which releases a run tests: all of them, or those in which something that a patch touches changed.

    python -m tests.matrix.spread          name them, and say how much changed

``make test`` takes the second: both ends of each engine's releases, and each one in which a function that any patch
replaces or relies on has another body than in the release before. ``OVERLAY_RELEASES=all`` takes all of them, as
``make test-all`` does.
"""

from __future__ import annotations

from functools import cache

from engine_overlay import catalog, engines, fingerprint
from engine_overlay.verify import releases
from engine_overlay.verify.releases import Release
from tests.conftest import EVERY

Bodies = dict[str, str | None]


@cache
def chosen() -> tuple[Release, ...]:
    """The releases that this run tests, in their order."""
    pinned = releases.pinned()
    if EVERY:
        return tuple(pinned)
    releases.fetch_all([release for release in pinned if not release.sources.is_dir()])
    return tuple(release for release in pinned if changed(release) is None or changed(release) or is_last(release))


@cache
def changed(release: Release) -> tuple[str, ...] | None:
    """Targets of patches whose bodies differ from those in the release before; None for the first release."""
    own = [other for other in releases.pinned() if other.distribution == release.distribution]
    place = own.index(release)
    if not place:
        return None
    here, before = bodies(release), bodies(own[place - 1])
    return tuple(path for path in here if here[path] != before[path])


def is_last(release: Release) -> bool:
    return [other for other in releases.pinned() if other.distribution == release.distribution][-1] == release


@cache
def bodies(release: Release) -> Bodies:
    """The body of each target of every patch in the release; None where it has none."""
    (engine,) = engines.installed([str(releases.fetch(release))])
    found: Bodies = {}
    for path in _targets():
        module, _, qualname = path.partition(":")
        source = engine.source(module)
        found[path] = fingerprint.of_file(source, qualname) if source else None
    return found


@cache
def _targets() -> tuple[str, ...]:
    entries = catalog.load(third_party=False).entries.values()
    return tuple(sorted({t.path for entry in entries for t in (*entry.patch.targets, *entry.patch.reads)}))


def main() -> None:
    for release in releases.pinned():
        found = changed(release)
        why = "the first" if found is None else f"{len(found)} of {len(_targets())} functions changed"
        print(f"{release.label}: {'tested' if release in chosen() else 'test-all only'}: {why}")


if __name__ == "__main__":
    main()
