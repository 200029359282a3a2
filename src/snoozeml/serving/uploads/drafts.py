"""Where uploads live on disk, from their first byte on.

Each upload has a folder of its own in `.uploads`, inside the models folder and thus on its file
system; discovery skips hidden folders. An upload that has become a model stays there, and a link in
the models folder leads to it:

    models/bge -> .uploads/6f2c…/bge

So a model appears, and is replaced, by one rename of a link. Its files never move: a plan that
refers to them stays right, and workers of the version before keep theirs until they have left.
"""

import fcntl
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from snoozeml.config.schema import Written
from snoozeml.core.disk import fsync
from snoozeml.serving.uploads.change import entry_in, undo_interrupted

_FOLDER: Final = ".uploads"


class Draft:
    """One upload's folder. Names in it start with a dot, as no model's id does.

    Attributes:
        body: the file that was sent.
        replaced: what had the model's place before, if that was no link.
    """

    def __init__(self, folder: Path) -> None:
        self.folder: Final = folder
        self.body: Final = folder / ".body"
        self.replaced: Final = folder / ".replaced"
        self.is_kept = False

    def content(self, model_id: str) -> Path:
        """The folder of the model itself."""
        return self.folder / model_id

    def sync(self) -> None:
        """Have everything on disk, so that no power cut leaves a model with holes."""
        for path, _, files in os.walk(self.folder, topdown=False):
            for name in (*files, "."):
                fsync(Path(path, name))

    def tidy(self) -> None:
        """Remove what nobody needs any more once the model is in its place."""
        self.body.unlink(missing_ok=True)
        shutil.rmtree(self.replaced, ignore_errors=True)


class Drafts:
    """The uploads of one models folder."""

    def __init__(self, models_dir: Path) -> None:
        self._models_dir = models_dir
        self._folder = Path(os.path.realpath(models_dir / _FOLDER))

    @contextmanager
    def new(self) -> Iterator[Draft]:
        """A folder for an upload; gone afterwards unless it was kept.

        Raises:
            OSError: the models folder cannot be written.
        """
        folder = self._folder / secrets.token_hex(8)
        folder.mkdir(mode=0o755, parents=True)
        lock = _lock(folder)  # says that this upload is under way
        draft = Draft(folder)
        try:
            yield draft
        finally:
            if not draft.is_kept:
                shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)

    def remove(self, target: Path) -> None:
        """Remove an upload whose model has been replaced; `target` is where its link led."""
        folder = target.parent
        if Path(os.path.realpath(folder.parent)) == self._folder:
            shutil.rmtree(folder, ignore_errors=True)

    def entries(self) -> list[Written]:
        """Entries in the configuration that go with an upload if it is removed."""
        return [entry for folder in self._each() if (entry := entry_in(folder)) is not None]

    def undo_interrupted(self) -> None:
        """Undo changes that were cut off; to be called before the models folder is looked at."""
        self._each_at_rest(undo_interrupted)

    def sweep(self) -> None:
        """Remove uploads that no link leads to; to be called once the configuration holds."""
        self._each_at_rest(self._sweep)

    def _each_at_rest(self, act: Callable[[Path], None]) -> None:
        """Uploads that another daemon is about are let alone."""
        for folder in self._each():
            with suppress(OSError):
                lock = _lock(folder)
                try:
                    act(folder)
                finally:
                    os.close(lock)

    def _each(self) -> list[Path]:
        with suppress(OSError):
            return [path for path in self._folder.iterdir() if path.is_dir()]
        return []

    def _sweep(self, folder: Path) -> None:
        undo_interrupted(folder)  # or its note must stay
        if folder.resolve() in self._linked():
            Draft(folder).tidy()
        else:
            shutil.rmtree(folder)

    def _linked(self) -> set[Path]:
        """The folders of uploads that are models now."""
        links = (path for path in self._models_dir.iterdir() if path.is_symlink())
        return {Path(os.path.realpath(link)).parent for link in links}


def _lock(folder: Path) -> int:
    """Hold a folder; OSError if somebody else does."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd
