"""What the overlay adds to the start of every Python interpreter, beside other tools' start-up files.

    python -m bench.startup [--runs 200] [--json FILE]

Makes one virtual environment per variant, then starts ``python -c pass`` in each in turn, in random order, and
compares the CPU time (user and system) of whole processes. The second table is the cost of reading the folder's
start-up files alone, measured in an interpreter that is already up: less noise, same order.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

READ_FOLDER = """
import site, sys, time
start = time.thread_time_ns()
site.addsitedir(sys.argv[1])
first = time.thread_time_ns()
site.addsitedir(sys.argv[1])
print((time.thread_time_ns() - start) // 1000, (first - start) // 1000)
"""


@dataclass
class Variant:
    """One environment: what is installed in it, and what its processes cost (CPU microseconds, one a run).

    ``every``: measured in every so many rounds; the dear ones need no fine figures.
    """

    name: str
    install: list[str] = field(default_factory=list)
    pth: str | None = None
    environ: dict[str, str] = field(default_factory=dict)
    every: int = 1
    process: list[int] = field(default_factory=list)
    reading: list[int] = field(default_factory=list)
    python: Path = Path()
    site: Path = Path()


VARIANTS = [
    Variant("nothing installed"),
    Variant("nothing installed, again"),
    Variant("engine-overlay, idle", [str(ROOT)]),
    Variant("engine-overlay, ENGINE_OVERLAY=off", [str(ROOT)], environ={"ENGINE_OVERLAY": "off"}),
    Variant("coverage, idle", ["coverage>=7.10"]),
    Variant("setuptools 74, distutils-precedence.pth", ["setuptools==74.1.3"]),
    Variant("a .pth that imports wrapt", ["wrapt"], pth="import wrapt\n", every=10),
]
WARM_UP = 3
BASE, OURS, COVERAGE = VARIANTS[0], VARIANTS[2], VARIANTS[4]


def prepare(variant: Variant, folder: Path, wheel: Path) -> None:
    """Make the variant's environment, with everything compiled as pip leaves it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    variant.python = folder / "bin" / "python"
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    variant.site = Path(subprocess.check_output([variant.python, "-c", ask], text=True).strip())
    if variant.install:
        what = [str(wheel) if name == str(ROOT) else name for name in variant.install]
        pip = [sys.executable, "-m", "pip", "--python", str(variant.python)]
        subprocess.run([*pip, "install", "--quiet", "--disable-pip-version-check", "--no-deps", *what], check=True)
    if variant.pth:
        (variant.site / "measured.pth").write_text(variant.pth, encoding="utf-8")


def cpu_of(command: list[str], environ: dict[str, str]) -> int:
    """CPU time of one process to its end, in microseconds."""
    pid = os.posix_spawn(command[0], command, environ)
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"{command[0]} ended with status {status}")
    return round((usage.ru_utime + usage.ru_stime) * 1e6)


def measure(variants: list[Variant], runs: int) -> None:
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "ENGINE_OVERLAY", "COV"))}
    for number in range(WARM_UP + runs):
        due = [variant for variant in variants if number % variant.every == 0]
        for variant in random.sample(due, len(due)):
            environ = plain | variant.environ
            cpu = cpu_of([str(variant.python), "-c", "pass"], environ)
            reading = subprocess.check_output(
                [variant.python, "-I", "-S", "-c", READ_FOLDER, variant.site], env=environ, text=True
            )
            # The first ones fill the disk cache.
            if number >= WARM_UP:
                variant.process.append(cpu)
                variant.reading.append(int(reading.split()[0]))


def at(values: list[int], share: float) -> int:
    """The value below which ``share`` of the values lie."""
    return sorted(values)[int(share * (len(values) - 1))]


def figures(variants: list[Variant]) -> list[dict]:
    """Per variant: CPU microseconds at p10 and median, the difference to nothing installed, ratios."""
    rows = []
    for variant in variants:
        row: dict = {"variant": variant.name, "runs": len(variant.process)}
        for kind in ("process", "reading"):
            for label, share in (("p10", 0.1), ("median", 0.5)):
                value, base = (at(getattr(v, kind), share) for v in (variant, BASE))
                row[f"{kind}_{label}_us"] = value
                row[f"{kind}_{label}_added_us"] = value - base
                row[f"{kind}_{label}_ratio"] = round(value / base, 4)
        rows.append(row)
    return rows


def table(rows: list[dict], kind: str) -> str:
    lines = [f"{'':40} {'p10 us':>9} {'added':>8} {'ratio':>7} {'median us':>10} {'added':>8} {'ratio':>7}"]
    for row in rows:
        cells = [f"{row['variant']:40}"]
        for label, width in (("p10", 9), ("median", 10)):
            cells.append(f"{row[f'{kind}_{label}_us']:>{width},}")
            cells.append(f"{row[f'{kind}_{label}_added_us']:>+8,}")
            cells.append(f"{row[f'{kind}_{label}_ratio']:>7.3f}")
        lines.append(" ".join(cells))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200, help="processes per variant (default 200)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="engine-overlay-bench-") as temporary:
        out = Path(temporary, "dist")
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "--wheel-dir", out, ROOT], check=True)
        (wheel,) = out.glob("*.whl")
        for number, variant in enumerate(VARIANTS):
            prepare(variant, Path(temporary, f"env{number}"), wheel)
        measure(VARIANTS, options.runs)
    rows = figures(VARIANTS)
    print(f"Python {sys.version.split()[0]}, {options.runs} interleaved runs a variant, CPU time")
    print("\nWhole process, python -c pass:\n" + table(rows, "process"))
    print("\nReading the start-up files of the folder twice, as a virtual environment does:\n" + table(rows, "reading"))
    ours, theirs = rows[VARIANTS.index(OURS)], rows[VARIANTS.index(COVERAGE)]
    for kind, words in (("process", "whole process"), ("reading", "start-up files alone")):
        ratio = ours[f"{kind}_p10_us"] / theirs[f"{kind}_p10_us"]
        print(f"\nengine-overlay / coverage at p10, {words}: {ratio:.3f}")
    if options.json:
        options.json.write_text(json.dumps({"python": sys.version, "variants": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
