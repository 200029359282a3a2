"""A change to the models folder and the configuration that happens as a whole or not at all.

What is about to be done is written down first. A daemon that dies half-way finds that note at its
next start, and undoes what had been done; one that fails half-way does the same at once.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from snoozeml.config.schema import Written
from snoozeml.config.writing import draft_of, replace_file

_NOTE: Final = ".undo"
_ENTRY: Final = ".entry"
_NEW_LINK: Final = ".link"


class Rewritten(msgspec.Struct, frozen=True):
    """A configuration file and its content; `before` is None where there was none."""

    file: Path
    before: bytes | None
    after: bytes


class Moved(msgspec.Struct, frozen=True):
    """A file or folder that gives way, and where it waits."""

    place: Path
    aside: Path


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done.

    Attributes:
        folder: the upload's own, which keeps the note.
        link: absolute; the model's place in the models folder.
        target: where it is to lead, relative to the models folder.
        target_before: where it led; None: it was not there.
        entry: what the configuration then says of the model, if nobody but uploads has written it.
    """

    folder: Path
    link: Path
    target: str
    target_before: str | None = None
    moved: Moved | None = None
    rewritten: Rewritten | None = None
    entry: Written | None = None

    def perform(self) -> None:
        """Do it all. After an error, or a crash, `undo` is right.

        Raises:
            OSError: something cannot be written or moved.
        """
        replace_file(self.folder / _NOTE, msgspec.json.encode(self, enc_hook=str))
        if self.moved is not None:
            self.moved.aside.parent.mkdir(exist_ok=True)
            self.moved.place.rename(self.moved.aside)
        self._lead_to(self.target)
        if self.entry is not None:
            replace_file(self.folder / _ENTRY, msgspec.json.encode(self.entry))
        if self.rewritten is not None:
            replace_file(self.rewritten.file, self.rewritten.after)

    def settle(self) -> None:
        """It holds from now on, whatever happens."""
        (self.folder / _NOTE).unlink()

    def undo(self) -> None:
        """Put back what has been done so far; what somebody else has changed since is let alone.

        Raises:
            OSError: something cannot be put back; the note stays for the next attempt.
        """
        if self.link.is_symlink() and str(self.link.readlink()) == self.target:
            if self.target_before is None:
                self.link.unlink()
            else:
                self._lead_to(self.target_before)
        moved = self.moved
        if moved is not None and moved.aside.exists() and not os.path.lexists(moved.place):
            moved.aside.rename(moved.place)
        if self.rewritten is not None:
            _restore(self.rewritten)
        (self.folder / _NOTE).unlink(missing_ok=True)

    def _lead_to(self, target: str) -> None:
        new = self.folder / _NEW_LINK
        new.unlink(missing_ok=True)
        new.symlink_to(target)
        new.replace(self.link)


def undo_interrupted(folder: Path) -> None:
    """Undo the change whose note is in an upload's folder, if there is one.

    Raises:
        OSError: as `Change.undo`.
    """
    with suppress(FileNotFoundError, msgspec.MsgspecError):
        msgspec.json.decode((folder / _NOTE).read_bytes(), type=Change, dec_hook=_to_path).undo()


def entry_in(folder: Path) -> Written | None:
    """The entry that came with the model in an upload's folder, and goes with it."""
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode((folder / _ENTRY).read_bytes(), type=Written)
    return None


def _to_path(_type: type, value: object) -> Path:
    return Path(str(value))


def _restore(rewritten: Rewritten) -> None:
    with suppress(OSError):  # it is not there, or the folder cannot be written
        draft_of(rewritten.file).unlink()
    try:
        if rewritten.file.read_bytes() != rewritten.after:
            return
    except FileNotFoundError:
        return
    if rewritten.before is None:
        rewritten.file.unlink()
    else:
        replace_file(rewritten.file, rewritten.before)
