"""A folder of status files that others may write to: whatever lies in it is theirs until the kernel says otherwise.

The folder is opened once and everything else is relative to its descriptor. No symbolic link is followed, nothing but a
regular file is opened for reading, and only what this user wrote is removed.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

MAX_BYTES = 1 << 18
"""Of one report; those of real processes have about a fifth of it."""
MAX_NAMES = 4096
"""How many names of a folder are looked at."""

_PART = re.compile(r"\.([0-9a-f-]+)\.[0-9a-f]{16}\.part")
_OPEN = os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)


class Unfit(OSError):
    """A folder or file that is not used, with one line that says why."""


class Folder:
    """An open folder; ``with`` closes it."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path, self.descriptor = path, descriptor

    @classmethod
    def open(cls, path: Path, *, owner: int | None = None, make: bool = False) -> Folder:
        """Open a folder that is no symbolic link; with ``owner`` only one that is this user's, and nobody else's.

        Raises Unfit with what is wrong, FileNotFoundError, or PermissionError.
        """
        if make:
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode=0o700, parents=True)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _OPEN)
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            if path.is_symlink():
                raise Unfit(f"{path} is a symbolic link and not followed; name the folder itself") from None
            raise Unfit(f"{path} is no folder") from None
        found = os.fstat(descriptor)
        if owner is not None and found.st_uid != owner:
            os.close(descriptor)
            raise Unfit(f"{path} belongs to user {found.st_uid}, not to user {owner}; it is not used")
        if owner is not None and found.st_mode & 0o022:
            os.close(descriptor)
            raise Unfit(f"{path} can be written by other users; it is not used (chmod 700 makes it fit)")
        return cls(path, descriptor)

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    def names(self) -> tuple[list[str], bool]:
        """The names in it, sorted, and whether there are more than are looked at."""
        with os.scandir(self.descriptor) as entries:
            found = [entry.name for entry in itertools.islice(entries, MAX_NAMES + 1)]
        return sorted(found[:MAX_NAMES]), len(found) > MAX_NAMES

    def read(self, name: str) -> tuple[bytes, int]:
        """The bytes of a regular file and the user that it belongs to. Raises OSError, with a line of its own."""
        # Looked at first: to open a device may do something, and a pipe would wait for a writer.
        if not stat.S_ISREG(os.stat(name, dir_fd=self.descriptor, follow_symlinks=False).st_mode):
            raise Unfit("it is no regular file")
        try:
            file = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | _OPEN, dir_fd=self.descriptor)
        except PermissionError:
            raise Unfit("it belongs to another user and cannot be read; run it as that user, or root") from None
        with open(file, "rb", buffering=0) as stream:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
                raise Unfit("it is no regular file of its own")
            if found.st_size > MAX_BYTES:
                raise Unfit(f"it has {found.st_size} bytes, more than a report can have")
            data = b""
            while len(data) <= MAX_BYTES and (part := stream.read(MAX_BYTES + 1 - len(data))):
                data += part
        if len(data) > MAX_BYTES:
            raise Unfit("it grows while it is read")
        return data, found.st_uid

    def write(self, name: str, data: bytes) -> None:
        """Put a file there in one step, readable by its user only."""
        with self.part(name.partition(".")[0]) as part:
            file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN, 0o600, dir_fd=self.descriptor)
            with open(file, "wb") as stream:
                stream.write(data)
            self.move(part, name)

    @contextlib.contextmanager
    def part(self, stem: str) -> Iterator[str]:
        """A name that nobody can guess, for what is moved to its own name when it is ready; gone after that."""
        name = f".{stem}.{secrets.token_hex(8)}.part"
        try:
            yield name
        except BaseException:
            self._unlink(name)
            raise

    def move(self, part: str, name: str) -> None:
        os.rename(part, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def is_mine(self, name: str) -> bool:
        """Whether this user wrote it: a regular file or a socket that is no link to anything."""
        try:
            found = os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except OSError:
            return False
        kind = stat.S_ISREG(found.st_mode) or stat.S_ISSOCK(found.st_mode)
        return kind and found.st_uid == os.geteuid() and found.st_nlink == 1

    def is_socket(self, name: str) -> bool:
        try:
            return stat.S_ISSOCK(os.stat(name, dir_fd=self.descriptor, follow_symlinks=False).st_mode)
        except OSError:
            return False

    def remove(self, name: str) -> None:
        """Remove a file or socket of this user; anything else stays."""
        if self.is_mine(name):
            self._unlink(name)

    def age(self, name: str, now: float) -> float:
        try:
            return now - os.stat(name, dir_fd=self.descriptor, follow_symlinks=False).st_mtime
        except OSError:
            return 0.0

    def address(self, name: str) -> str:
        """The path of a socket in it: by the descriptor, which is short, and cannot be turned to another folder."""
        short = f"/proc/self/fd/{self.descriptor}"
        return f"{short}/{name}" if os.path.isdir(short) else str(self.path / name)

    def _unlink(self, name: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self.descriptor)


def part_of(name: str) -> str | None:
    """The name without suffix that an unfinished file was to have; None for any other file."""
    found = _PART.fullmatch(name)
    return found[1] if found else None
