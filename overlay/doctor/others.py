"""Who else reaches into the engine: plug-ins, start-up files, functions that somebody replaced, a second overlay."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from engine_overlay import catalog
from engine_overlay.doctor.child import Answers
from engine_overlay.doctor.engine import site_folders
from engine_overlay.doctor.finding import Finding
from engine_overlay.engines import DISTRIBUTIONS, Engine

SUBJECT = "others"


def check(engine: Engine, answers: Answers) -> list[Finding]:
    """``answers`` are those of a process with every plug-in loaded, and with the patches taken out at the end."""
    findings = [*_plugins(engine), *_replaced(engine, answers), *_startup(engine, answers), *_overlays()]
    if not any(f.level == "problem" for f in findings) and answers.get("targets") is not None:
        count = len({t.path for t in _targets(engine)})
        findings.append(Finding(SUBJECT, "ok", f"none of the {count} functions of the patches is replaced by others"))
    return findings


def _targets(engine: Engine) -> Iterable:
    for entry in catalog.load(third_party=False).entries.values():
        if engine.name in entry.patch.engines:
            yield from entry.patch.targets


def _plugins(engine: Engine) -> list[Finding]:
    own = {name.lower() for name in (*DISTRIBUTIONS[engine.name], "engine-overlay")}
    found: dict[str, list[str]] = {}
    for point in importlib.metadata.entry_points(group=f"{engine.name}.general_plugins"):
        dist = point.dist
        name = dist.name if dist is not None else "unknown"
        if name.lower().replace("_", "-") not in own:
            found.setdefault(f"{name} {dist.version}" if dist is not None else name, []).append(point.name)
    return [
        Finding(
            SUBJECT,
            "note",
            f"plug-in of {dist}: {', '.join(sorted(set(points)))}",
            f"{engine.name} runs it in each of its processes",
        )
        for dist, points in sorted(found.items())
    ]


def _replaced(engine: Engine, answers: Answers) -> list[Finding]:
    if (said := answers.errors.get("start")) is not None:
        what = "the engine's plug-ins cannot be loaded"
        return [Finding(SUBJECT, "problem", what, said, "uninstall the plug-in that raises")]
    found = answers.get("targets")
    if found is None:
        why = answers.errors.get("targets") or "the process ended before"
        return [Finding(SUBJECT, "note", "who else replaces functions of the engine could not be asked", why)]
    findings = []
    owners: dict[str, list[str]] = {}
    for entry in catalog.load(third_party=False).entries.values():
        for target in entry.patch.targets if engine.name in entry.patch.engines else ():
            owners.setdefault(target.path, []).append(entry.patch.id)
    for path, who in sorted(found["replaced"].items()):
        whose = _distribution(who["file"])
        by = f"{who['by']} of {whose}" if whose else who["by"]
        how = "wraps" if who["wraps"] else "replaces"
        ids = ", ".join(sorted(set(owners.get(path, ()))))
        findings.append(
            Finding(
                SUBJECT,
                "problem",
                f"{by} {how} {engine.name}.{path.replace(':', '.')}",
                f"in {who['file']}; the patches {ids} stay out where it comes first",
                f"pip uninstall {whose}" if whose else f"find out what imports {who['by']}",
            )
        )
    for module, error in sorted(found["unimported"].items()):
        findings.append(Finding(SUBJECT, "note", f"{engine.name}.{module} cannot be imported here", error))
    return findings


def _distribution(file: str | None) -> str | None:
    """The distribution that a file belongs to."""
    if not file:
        return None
    place = Path(file)
    for dist in importlib.metadata.distributions():
        for entry in dist.files or ():
            if entry.name == place.name and Path(str(dist.locate_file(entry))) == place:
                return dist.name
    return None


def _startup(engine: Engine, answers: Answers) -> list[Finding]:
    """Start-up files that name an engine, and an engine that was there before anybody asked for it."""
    findings = []
    word = re.compile(rf"\b{engine.name}\b")
    for folder in site_folders():
        for file in sorted(folder.glob("*.pth")):
            lines = _lines(file)
            runs = [line for line in lines if line.startswith(("import ", "import\t"))]
            if file.name != "engine_overlay.pth" and any(word.search(line) for line in runs):
                findings.append(_early(f"the start-up file {file} names {engine.name}", engine))
    for name in ("sitecustomize", "usercustomize"):
        try:
            spec = importlib.util.find_spec(name)
        except ValueError:
            continue  # it put a module without a spec in its own place
        file = Path(spec.origin) if spec and spec.origin and spec.has_location else None
        if file is not None and file.is_file() and any(word.search(line) for line in _lines(file)):
            findings.append(_early(f"{file} names {engine.name}", engine))
    if (answers.get("import") or {}).get("early"):
        findings.append(_early(f"{engine.name} is imported before a program asks for it", engine))
    return findings


def _early(what: str, engine: Engine) -> Finding:
    why = "it runs in every Python process; what it takes from the engine before the overlay comes stays unpatched"
    return Finding(SUBJECT, "problem", what, why, f"take it out, or let it wait until {engine.name} is imported")


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _overlays() -> list[Finding]:
    """More than one installed overlay: which one comes in is a matter of order."""
    places: dict[Path, str] = {}
    for dist in importlib.metadata.distributions():
        if (dist.name or "").lower().replace("_", "-") == "engine-overlay":
            root = Path(str(dist.locate_file("."))).resolve()
            places.setdefault(root, f"{dist.version} in {root}")
    for entry in sys.path:
        if (Path(entry or ".") / "engine_overlay" / "__init__.py").is_file():
            places.setdefault(Path(entry or ".").resolve(), f"a copy in {entry}")
    if len(places) < 2:
        return []
    what = f"{len(places)} overlays are installed: {', '.join(places.values())}"
    why = "their start-up files both run, and the first one on sys.path comes in"
    return [Finding(SUBJECT, "problem", what, why, "pip uninstall engine-overlay in all but one of them")]
