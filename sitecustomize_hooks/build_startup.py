"""The one build step that setuptools has no declaration for: files at the root of site-packages."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools.command.build_py import build_py as _build_py

HERE = Path(__file__).parent
ROOT_FILES = ("engine_overlay.pth", "engine_overlay.start")
LAUNCHER_FILES = ("sitecustomize.py", "_engine_overlay_startup/__init__.py", "_engine_overlay_startup/door.py")
LAUNCHER = Path("engine_overlay", "_launcher")


class build_py(_build_py):
    """Adds the start-up files, and the launcher's folder, to what setuptools builds."""

    def run(self) -> None:
        # setuptools keeps build/lib between builds of a checkout: a patch deleted since would be shipped.
        if not self.editable_mode:
            shutil.rmtree(Path(self.build_lib, "engine_overlay"), ignore_errors=True)
        super().run()
        for source, target in self._startup_files():
            target.parent.mkdir(parents=True, exist_ok=True)
            self.copy_file(str(source), str(target), preserve_mode=False)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return super().get_outputs(include_bytecode) + [str(target) for _, target in self._startup_files()]

    def get_source_files(self) -> list[str]:
        # What goes into the sdist; these files are in no package.
        extra = [*ROOT_FILES, "sitecustomize.py", Path(__file__).name]
        return super().get_source_files() + [str((HERE / name).relative_to(Path.cwd())) for name in extra]

    def _startup_files(self) -> list[tuple[Path, Path]]:
        if self.editable_mode:
            # Here install_lib is the unpacked editable wheel. The launcher finds its files in the checkout.
            root = Path(self.get_finalized_command("install").install_lib)
            return [(HERE / name, root / name) for name in ROOT_FILES]
        root = Path(self.build_lib)
        return [(HERE / name, root / name) for name in ROOT_FILES] + [
            (HERE / name, root / LAUNCHER / name) for name in LAUNCHER_FILES
        ]
