"""A build backend that builds nothing: it answers pip's question for metadata from the archive's PKG-INFO.

pip prepares the metadata of every source distribution that it downloads. For an engine that means a
compiler, CMake and a Rust tool chain. With the folder above on PYTHONPATH, and --no-build-isolation, pip
finds this module in place of the backend and is content.
"""

from __future__ import annotations

import shutil
from email.parser import Parser
from pathlib import Path
from typing import Any


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """Nothing: no wheel will be built."""
    return []


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Any = None) -> str:
    """Copy PKG-INFO, which lies at the root of the archive, and return the name of the dist-info folder."""
    source = Path("PKG-INFO")
    headers = Parser().parsestr(source.read_text(encoding="utf-8"), headersonly=True)
    folder = f"{headers['Name'].replace('-', '_')}-{headers['Version']}.dist-info"
    Path(metadata_directory, folder).mkdir()
    shutil.copy(source, Path(metadata_directory, folder, "METADATA"))
    return folder
