"""Everything the doctor looks at, in one go: which questions go to the engine, and which checks read the answers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine_overlay import catalog, engines, settings, verdict
from engine_overlay.doctor import budget, child, flags, others, parsers, probes, rl, tokenizer
from engine_overlay.doctor import engine as installation
from engine_overlay.doctor import model as models
from engine_overlay.doctor.finding import Finding, ordered
from engine_overlay.doctor.launch import Launch

ABOUT_FLAGS = ("arguments",)
ABOUT_MODEL = ("tokenizer", "reasoning", "tools", "template", "readers")
ABOUT_CONFIG = ("config", "budget")


@dataclass(slots=True)
class Report:
    """``launch`` is None where no flags are known; ``model`` None where its files are not here."""

    launch: Launch | None
    model: models.Model | None = None
    findings: list[Finding] = field(default_factory=list)
    probes: probes.Rows = field(default_factory=list)

    @property
    def wrong(self) -> bool:
        """Whether a finding is a problem, or a probe did not end as it should."""
        bad = any(row["judgement"].startswith("NOT") or row["verdict"] in verdict.REFUSALS for row in self.probes)
        return bad or any(finding.level == "problem" for finding in self.findings)


def examine(
    launch: Launch | None,
    *,
    model: str | None = None,
    want_rl: bool = False,
    want_probes: bool = True,
    only: str | None = None,
    seconds: float = child.SECONDS,
    environ: Mapping[str, str] = os.environ,
) -> Report:
    """Look at the engines here, or ``only`` this one; ``model`` wins over the one in the flags.

    Raises LookupError when neither an engine nor half of one is installed here, or not the wanted one.
    """
    environ = installation.variables(launch, environ)
    here = [e for e in engines.installed() if only in (None, e.name)]
    if not here and not installation.halves(only):
        raise LookupError(f"{only} is not installed here" if engines.installed() else "no engine is installed here")
    report = Report(launch, findings=installation.check(launch, environ, only))
    if launch is not None and launch.engine not in (None, *(e.name for e in here)):
        what = f"the flags start {launch.engine}, which is not installed here"
        fix = "run the doctor in the environment of the server"
        report.findings.append(Finding(flags.SUBJECT, "problem", what, "nobody here can be asked about them", fix))
    name = model or (launch.model if launch and launch.gateway is None else None)
    report.model = _model(report, name, launch, environ)
    for engine in here:
        _ask(report, engine, environ, want_rl, seconds)
        if want_probes:
            rows, failed = probes.prove(engine, environ=environ, seconds=seconds)
            report.probes += rows
            report.findings += [Finding("probes", "problem", line) for line in failed]
    if launch is None:
        what = "no flags are known: no server runs here, and none were given"
        fix = 'engine-overlay doctor --flags "vllm serve MODEL ..."'
        report.findings.append(Finding(flags.SUBJECT, "note", what, "so parsers and budget were not looked at", fix))
    report.findings = ordered(report.findings)
    return report


def _model(report: Report, name: str | None, launch: Launch | None, environ: Mapping[str, str]) -> models.Model | None:
    if name is None:
        if launch is not None and launch.gateway is None:
            what = "no model is named in the flags"
            report.findings.append(Finding("model", "note", what, "", "engine-overlay doctor --model DIR_OR_ID"))
        return None
    other = launch.flag("tokenizer") if launch else None
    template = launch.flag("chat-template") if launch else None
    try:
        folder = models.find(name, launch.flag("revision") if launch else None, environ)
        place = models.find(other, None, environ) if other else None
        return models.read(name, folder, tokenizer=place, template=_file(template))
    except models.NotHere as error:
        what = f"the model's files are not here: {error}"
        why = "so tokenizer, parsers and budget were not looked at"
        report.findings.append(Finding("model", "note", what, why, "engine-overlay doctor --model DIR"))
        return None


def _file(path: str | None) -> str | None:
    """The source of a template that was given as a file; engines also take the template itself."""
    if not path:
        return None
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return path if "{" in path else None


def _ask(report: Report, engine: engines.Engine, environ: Mapping[str, str], want_rl: bool, seconds: float) -> None:
    """Ask one engine about flags and model, and let the checks read what it said."""
    wanted = settings.read(environ)
    want_rl = want_rl or wanted.profile == "rl"
    launch, model = report.launch, report.model
    if launch is not None and (launch.engine not in (None, engine.name) or launch.foreign):
        # Another engine's server, or other code's flags: only what is installed beside it can be asked.
        launch, model = None, None
    told = _told(launch, model)
    questions = ["start", *(ABOUT_FLAGS if launch else ()), "names", *(ABOUT_MODEL if model else ())]
    # Last, as it takes the patches out.
    questions += [*(ABOUT_CONFIG if model and launch else ()), "targets"]
    answers = child.ask(engine.name, questions, told, overlay=True, environ=environ, seconds=seconds)
    if answers.ended or "import" in answers.errors:
        why = answers.errors.get("import") or answers.ended
        what = f"{engine.label} could not be asked to the end: {why}"
        report.findings.append(Finding("engine", "problem", what, "what it did not answer is left out below"))
    report.findings += others.check(engine, answers)
    verdicts = verdict.decide(catalog.load(), engine, wanted)
    read = flags.read(launch, answers) if launch else flags.Flags()
    if launch is not None:
        report.findings += flags.check(launch, read, answers)
    if model is not None:
        if launch is not None:
            on = wanted.mode != "off"
            report.findings += tokenizer.check(model, read, answers, verdicts, overlay=on)
            report.findings += budget.check(engine, read, answers)
        report.findings += parsers.check(model, read, answers, answers.get("names") or {})
    if want_rl and launch is not None and model is not None:
        report.findings += rl.check(answers, verdicts, on=wanted.profile == "rl")
    elif want_rl:
        what = "the values that training wants were not looked at"
        report.findings.append(Finding(rl.SUBJECT, "note", what, "they need flags, and a model whose files are here"))


def _told(launch: Launch | None, model: models.Model | None) -> dict[str, Any]:
    told: dict[str, Any] = {"words": [], "subcommand": None}
    if launch is not None:
        read = flags.read(launch, None)
        told |= {"words": list(launch.words), "subcommand": launch.subcommand}
        told |= {"reasoning_parser": read.reasoning_parser, "tool_call_parser": read.tool_call_parser}
        told |= {name: read.values[name] for name in ("tokenizer_mode", "trust_remote_code")}
    if model is not None:
        told |= {"folder": str(model.folder), "tokenizer": str(model.place)}
        told["chat_template"] = _file(launch.flag("chat-template")) if launch else None
    return told
