"""The installed engine and the overlay's way into it: read from files and environment, nothing is imported."""

from __future__ import annotations

import importlib.metadata
import os
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from packaging.version import Version

from engine_overlay import catalog, engines, reach, settings, verdict
from engine_overlay.doctor.finding import Finding
from engine_overlay.doctor.launch import Launch
from engine_overlay.record import ENGINES

SUBJECT = "engine"

_UNTESTED = {
    "match": "patches go in where every function they touch is known (ENGINE_OVERLAY_UNTESTED=match)",
    "refuse": "no patch goes in (ENGINE_OVERLAY_UNTESTED=refuse)",
    "apply": "patches go in also where functions changed (ENGINE_OVERLAY_UNTESTED=apply)",
}


def check(launch: Launch | None, environ: Mapping[str, str], only: str | None = None) -> list[Finding]:
    """Findings about every engine that is here, wholly or in part, and about the overlay in this environment.

    ``only`` is the one engine that is looked at.
    """
    found = [e for e in engines.installed() if only in (None, e.name)]
    findings = halves(only)
    known, wanted = catalog.load(), settings.read(environ)
    for engine in found:
        findings += _release(engine, known, wanted)
        findings += _front_end(engine, launch, environ)
        findings += _plugin_list(engine, environ)
    findings += _overlay(known, wanted)
    findings += _other_environment(launch)
    return findings


def halves(only: str | None = None) -> list[Finding]:
    """Findings about engines of which something is missing, or there twice."""
    found = {e.name: e for e in engines.installed()}
    return [f for name in ENGINES if only in (None, name) for f in _halves(name, found.get(name))]


def _halves(name: str, engine: engines.Engine | None) -> list[Finding]:
    """Metadata without a package, or a package without metadata."""
    there = _distributions(name)
    if engine is None:
        return [
            Finding(
                SUBJECT,
                "problem",
                f"{name} is half-installed: there is metadata of {dist} {version}, and no package",
                f"the metadata is in {place}; an interrupted installation leaves it so",
                f"pip install --force-reinstall --no-deps {dist}=={version}",
            )
            for dist, version, place in there
        ]
    if not there:
        return [
            Finding(
                SUBJECT,
                "note",
                f"{name} in {engine.root} belongs to no installed distribution",
                "pip does not know it, so its plug-ins' entry points and its command may be missing",
                "" if engine.version else f"pip install --force-reinstall {engines.DISTRIBUTIONS[name][0]}",
            )
        ]
    others = [f"{dist} {version}" for dist, version, _ in there if dist != engine.distribution]
    if others:
        return [
            Finding(
                SUBJECT,
                "problem",
                f"several distributions claim the package {name}: {engine.distribution} and {', '.join(others)}",
                f"they write into the same folder {engine.root}, and the last one that was installed won",
                f"pip uninstall {' '.join(other.split()[0] for other in others)} "
                f"&& pip install --force-reinstall {engine.distribution}=={engine.version}",
            )
        ]
    return []


def _distributions(name: str) -> list[tuple[str, str, Path]]:
    found: dict[tuple[str, str], Path] = {}
    for distribution in engines.DISTRIBUTIONS[name]:
        stem = distribution.replace("-", "_")
        for entry in sys.path:
            for folder in sorted(Path(entry or ".").glob(f"{stem}-*.dist-info")):
                if (folder / "METADATA").is_file():
                    version = folder.name[len(stem) + 1 : -len(".dist-info")]
                    found.setdefault((distribution, version), folder)
    return [(dist, version, folder) for (dist, version), folder in found.items()]


def _release(engine: engines.Engine, known: catalog.Catalog, wanted: settings.Settings) -> list[Finding]:
    if engine.release is None:
        return [
            Finding(
                SUBJECT,
                "problem",
                f"{engine.name} in {engine.root} does not say which release it is ({engine.version or 'nothing'})",
                "only patches go in whose every function is known",
                "engine-overlay plan",
            )
        ]
    ranges = [e.patch.engines[engine.name] for e in known.entries.values() if engine.name in e.patch.engines]
    first, last = min(Version(r.first) for r in ranges), max(Version(r.last) for r in ranges)
    verdicts = verdict.decide(known, engine, wanted)
    going = sum(v.code == verdict.APPLY for v in verdicts.values())
    refused = {i: v for i, v in verdicts.items() if v.refused}
    findings = []
    if first <= engine.release <= last:
        text = f"{engine.label} is one of the tested releases ({first} to {last}); {going} patches go in"
        findings.append(Finding(SUBJECT, "ok", text))
    else:
        step = "engine-overlay drift" if engine.release > last else "engine-overlay plan"
        findings.append(
            Finding(
                SUBJECT,
                "note",
                f"{engine.label} is untested: the overlay was tested on {first} to {last}; {going} patches go in, "
                f"{len(refused)} are refused",
                _UNTESTED[wanted.untested],
                step,
            )
        )
    by_code: dict[str, list[str]] = {}
    for i, v in refused.items():
        by_code.setdefault(v.code, []).append(i)
    for code, ids in by_code.items():
        what = f"{', '.join(ids)}: refused as {code}"
        why = "; ".join(f"{i}: {refused[i].reason}" for i in ids[:3]) + ("; and so on" if len(ids) > 3 else "")
        step = f"engine-overlay explain {ids[0]}" if len(ids) == 1 else "engine-overlay plan"
        findings.append(Finding(SUBJECT, "problem", what, why, step))
    return findings


def _front_end(engine: engines.Engine, launch: Launch | None, environ: Mapping[str, str]) -> list[Finding]:
    """Whether requests meet the patches of this server at all."""
    if launch is not None and launch.engine not in (None, engine.name):
        return []
    place = reach.of_server(engine.name, launch, environ, rust=reach.has_rust(engine, environ))
    way = place.of(("server",))
    if way.out:
        level = "problem" if way.word == reach.BYPASSED else "note"
        why = "patches of parsers and of the API server do nothing there"
        return [Finding(SUBJECT, level, f"{reach.OUT_OF_PATH}: {way.reason}", why, way.step)]
    if launch is not None and launch.gateway is not None:
        what = f"{launch.gateway.name} hands on what the servers behind it answer"
        return [Finding(SUBJECT, "ok", f"{what}: patches count where those run")]
    return []


def _plugin_list(engine: engines.Engine, environ: Mapping[str, str]) -> list[Finding]:
    name = f"{engine.name.upper()}_PLUGINS"
    if name not in environ or "engine_overlay" in [word.strip() for word in environ[name].split(",")]:
        return []
    started = startup_files()
    return [
        Finding(
            SUBJECT,
            "note" if started else "problem",
            f"{name}={environ[name]} leaves engine_overlay out",
            f"the start-up file {started[0]} lets it in nevertheless"
            if started
            else "no start-up file is here, so the plug-in is the only way in",
            "" if started else f"export {name}={','.join(filter(None, (environ[name], 'engine_overlay')))}",
        )
    ]


def startup_files() -> list[Path]:
    """The start-up files of the overlay in the folders that Python reads them from."""
    return [file for folder in site_folders() for file in [folder / "engine_overlay.pth"] if file.is_file()]


def site_folders() -> list[Path]:
    """Folders whose .pth files this interpreter reads at its start."""
    import site

    places = [*sysconfig.get_paths().values(), *site.getsitepackages()]
    if site.ENABLE_USER_SITE:
        places.append(site.getusersitepackages())
    named = [Path(p) for p in dict.fromkeys(places) if Path(p).name in ("site-packages", "dist-packages")]
    return [folder for folder in named if folder.is_dir()]


def _overlay(known: catalog.Catalog, wanted: settings.Settings) -> list[Finding]:
    findings = []
    for line in [*wanted.problems, *verdict.unknown_ids(known, wanted), *known.problems]:
        what, _, step = line.rpartition("; ")
        findings.append(Finding("overlay", "problem", what or line, "", step if what else ""))
    if wanted.mode == "off" and not any("ENGINE_OVERLAY=" in line for line in wanted.problems):
        text = "ENGINE_OVERLAY=off: the stock engine is served, no patch goes in"
        findings.append(Finding("overlay", "note", text, "", "unset ENGINE_OVERLAY"))
    if started := startup_files():
        findings.append(Finding("overlay", "ok", f"it comes in by the start-up file {started[0]}"))
    else:
        points = [p for name in ENGINES for p in importlib.metadata.entry_points(group=f"{name}.general_plugins")]
        plugin = any(p.name == "engine_overlay" for p in points)
        findings.append(
            Finding(
                "overlay",
                "note" if plugin else "problem",
                "there is no start-up file in this environment" + ("" if plugin else ", and no plug-in of the overlay"),
                "it comes in as a plug-in of the engine only, after some of its modules were imported"
                if plugin
                else "nothing lets it into an engine that is started here",
                "pip install --force-reinstall --no-deps engine-overlay",
            )
        )
    return findings


def _other_environment(launch: Launch | None) -> list[Finding]:
    if launch is None or launch.pid is None or launch.python is None:
        return []
    # The interpreters of two virtual environments may be links to the same file; their folders differ.
    if Path(launch.python).parent.resolve() == Path(sys.executable).parent.resolve():
        return []
    return [
        Finding(
            SUBJECT,
            "note",
            f"the server of pid {launch.pid} runs in {launch.python}, the doctor in {sys.executable}",
            "what is said of engine, plug-ins and patches is true of the doctor's environment",
            f"{launch.python} -m engine_overlay.cli doctor --pid {launch.pid}",
        )
    ]


def variables(launch: Launch | None, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment that counts: this one, with the server's own variables over it where a server is known."""
    if launch is None:
        return dict(environ)
    kept = dict(environ)
    if launch.pid is not None:
        kept = {k: v for k, v in environ.items() if not k.startswith(("ENGINE_OVERLAY", "VLLM_", "APHRODITE_"))}
    found = {**kept, **launch.environ}
    # The server may find files of its own there; the overlay must still be found as it is found here.
    paths = [p for p in (launch.environ.get("PYTHONPATH"), environ.get("PYTHONPATH")) if p]
    return found | ({"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))} if paths else {})
