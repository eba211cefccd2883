"""The commands about patches, run as a user runs them: list, diff, drift, new."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.core.support import engine, louder_patch, third_party, write
from tests.core.test_cli import cli


@pytest.fixture
def folder(tmp_path):
    return third_party(engine(tmp_path), "loud_patches", louder_patch(tmp_path))


# -- list


def test_list_has_every_patch_with_its_area_and_releases(folder):
    done = cli(folder, "list", "--json")
    assert done.returncode == 0, done.stderr
    rows = {row["id"]: row for row in json.loads(done.stdout)["patches"]}
    assert rows["spelled_markers"]["area"] == "parsing" and rows["spelled_markers"]["origin"] == "built in"
    assert rows["louder"]["area"] == "third party" and rows["louder"]["engines"] == {"vllm": ["0.1.0", "0.2.0"]}
    text = cli(folder, "list").stdout
    assert "A louder greeting" in text and "0.1.0-0.2.0" in text


def test_list_says_which_patch_cannot_be_loaded(folder):
    done = cli(third_party(folder, "bad_patches", "raise RuntimeError('broken')\n"), "list")
    assert done.returncode == 1 and "patch bad_patches of bad_patches 3.1 cannot be loaded" in done.stdout


# -- diff


def test_diff_shows_the_installed_function_beside_the_effective_one(folder):
    done = cli(folder, "diff", "louder")
    assert done.returncode == 0, done.stderr
    assert "--- greeting:Greeter.greet (vllm 0.1.5, installed)" in done.stdout
    assert '-    return "plain"' in done.stdout and '+    return old(*args, **kwargs) + "!"' in done.stdout
    (row,) = json.loads(cli(folder, "diff", "louder", "--json").stdout)
    assert row["state"] == "applied" and row["file"] == "loud_patches.py" and row["line"] > 1


def test_diff_of_a_patch_that_stays_out_says_why(folder):
    done = cli(folder, "diff", "louder", ENGINE_OVERLAY_DISABLE="louder")
    assert done.returncode == 1 and done.stdout == "\n"
    assert done.stderr == "vllm 0.1.5: louder does not go in: disabled: named in ENGINE_OVERLAY_DISABLE\n"


def test_diff_guesses_a_typo_and_says_when_the_engine_is_half_installed(folder):
    done = cli(folder, "diff", "luoder")
    assert done.returncode == 2 and "there is no patch luoder, did you mean louder?" in done.stderr
    (folder / "vllm" / "__init__.py").write_text("raise ImportError('half installed')\n")
    done = cli(folder, "diff", "louder")
    assert done.returncode == 2 and "cannot be imported (ImportError: half installed)" in done.stderr


# -- drift


def changed(folder, tmp_path_factory, old: str, new: str):
    """Another release of the engine, in which ``old`` reads ``new``."""
    later = engine(tmp_path_factory.mktemp("later"), "0.3.0")
    path = later / "vllm" / "greeting.py"
    path.write_text(path.read_text().replace(old, new))
    return later


def drift(folder, later, *more):
    done = cli(folder, "drift", "--sources", str(later), "--json", *more)
    reports = json.loads(done.stdout)
    assert [r["engine"] for r in reports] == ["vllm 0.3.0"]
    return done.returncode, next(row for row in reports[0]["patches"] if row["id"] == "louder")


def test_drift_finds_nothing_where_nothing_changed(folder, tmp_path_factory):
    later = changed(folder, tmp_path_factory, "never there", "")
    done = cli(folder, "drift", "--sources", str(later), "--json", ENGINE_OVERLAY_ONLY="louder")
    row = next(row for row in json.loads(done.stdout)[0]["patches"] if row["id"] == "louder")
    assert row["changed"] == [] and row["probe"][0] == "PRESENT" and not row["retire"]


def test_drift_names_a_changed_target_and_a_missing_one(folder, tmp_path_factory):
    status, row = drift(folder, changed(folder, tmp_path_factory, '"plain"', '"other"'))
    assert status == 1 and [c["target"] for c in row["changed"]] == ["greeting:Greeter.greet"]
    assert "which is unknown" in row["changed"][0]["why"]
    _, row = drift(folder, changed(folder, tmp_path_factory, "def greet(self)", "def hail(self)"), "--no-probes")
    assert row["changed"][0]["why"] == "Greeter.greet is gone" and row["probe"] is None


def test_drift_says_which_patch_the_engine_made_needless(folder, tmp_path_factory):
    later = changed(folder, tmp_path_factory, '"plain"', '"plain!"')
    status, row = drift(folder, later)
    assert status == 1 and row["retire"] and row["probe"][0] == "ABSENT"
    assert "retire it: the fault is gone" in cli(folder, "drift", "--sources", str(later)).stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--sources", "/nowhere"], "/nowhere holds no engine"),
        (["--release", "nothing-1.0"], "nothing-1.0 is no release of vllm, aphrodite-engine"),
        (["--release", "vllm"], "is no release of"),
    ],
)
def test_drift_called_wrongly_gets_one_line(folder, arguments, says):
    done = cli(folder, "drift", *arguments)
    assert done.returncode == 2 and says in done.stderr and done.stderr.count("\n") == 1


# -- new


def pytest_in(folder, test, *paths):
    env = {k: v for k, v in os.environ.items() if not k.startswith("ENGINE_OVERLAY")}
    # Its plug-ins take longer than the test.
    env |= {"PYTHONPATH": os.pathsep.join(map(str, [folder, *paths])), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)]
    return subprocess.run(command, env=env, capture_output=True, text=True, cwd=folder, check=False)


def test_new_makes_a_package_whose_test_fails_until_it_is_filled_in(folder, tmp_path_factory):
    into = tmp_path_factory.mktemp("own")
    done = cli(folder, "new", "louder-still", "--target", "greeting:Greeter.greet", "--into", str(into))
    assert done.returncode == 0, done.stderr
    package = into / "engine-overlay-louder-still"
    source, test = package / "src" / "engine_overlay_louder_still.py", package / "tests" / "test_louder_still.py"
    point = 'louder_still = "engine_overlay_louder_still"'
    assert point in (package / "pyproject.toml").read_text()
    before = pytest_in(folder, test, package / "src")
    assert before.returncode == 1 and "test_nothing_is_left_to_fill_in" in before.stdout

    text = source.read_text().replace("TODO: mend", "Mend").replace("TODO", "done")
    text = text.replace("return original(*args, **kwargs)", 'return original(*args, **kwargs) + "!"')
    text = text.replace("# done: PRESENT", "# PRESENT").replace(
        'return Finding(Outcome.UNKNOWN, "the probe is not written yet")',
        "said = engine.module('greeting').Greeter().greet()\n"
        "    return Finding(Outcome.ABSENT if said.endswith('!') else Outcome.PRESENT, said)",
    )
    source.write_text(text)
    # What an installation would bring: the entry point.
    write(
        package / "src",
        {
            "mine-0.1.dist-info/METADATA": "Metadata-Version: 2.1\nName: mine\nVersion: 0.1\n",
            "mine-0.1.dist-info/entry_points.txt": f"[engine_overlay.patches]\n{point.replace(chr(34), '')}\n",
        },
    )
    (folder / "loud_patches-3.1.dist-info" / "entry_points.txt").write_text("")
    after = pytest_in(folder, test, package / "src")
    assert after.returncode == 0, after.stdout


def test_new_in_a_checkout_writes_beside_the_others(folder, tmp_path_factory):
    checkout = write(tmp_path_factory.mktemp("checkout"), {"patches/parsing/__init__.py": ""})
    arguments = ["--target", "greeting:Greeter.greet", "--area", "parsing", "--into", str(checkout)]
    done = cli(folder, "new", "quiet", *arguments)
    assert done.returncode == 0, done.stderr
    assert (checkout / "patches/parsing/quiet.py").is_file()
    test = (checkout / "tests/patches/parsing/test_quiet.py").read_text()
    assert "import engine_overlay.patches.parsing.quiet" in test
    again = cli(folder, "new", "quiet", *arguments)
    assert again.returncode == 2 and "exists; choose another id" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["Bad Id", "--target", "greeting:greet"], "'Bad Id' is not a lower-case Python name"),
        (["louder", "--target", "greeting:greet"], "there is a patch louder already"),
        (["soft", "--target", "greeting.greet"], "is not 'module:qualified.name'"),
        (["soft", "--target", "gone:greet"], "vllm.gone has no source file"),
        (["soft", "--target", "greeting:greet", "--area", "nowhere"], "there is no folder patches/nowhere"),
        (["soft", "--target", "greeting:greet", "--engine", "aphrodite"], "no engine found here"),
    ],
)
def test_new_called_wrongly_gets_one_line(folder, arguments, says):
    done = cli(folder, "new", *arguments)
    assert done.returncode == 2 and says in done.stderr and done.stderr.count("\n") == 1
