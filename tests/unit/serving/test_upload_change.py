"""A change happens as a whole or not at all, wherever it is cut off."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from snoozeml.serving.uploads import change
from snoozeml.serving.uploads.change import Change, Moved, Rewritten
from snoozeml.serving.uploads.drafts import Draft, Drafts


class Killed(BaseException):
    """The process is gone."""


def snapshot(folder: Path) -> dict[str, str | bytes]:
    """What lies in a models folder, uploads left out."""
    return dict(_things(folder))


def _things(folder: Path) -> Iterator[tuple[str, str | bytes]]:
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if name.startswith(".uploads"):
            continue
        if path.is_symlink():
            yield name, f"-> {path.readlink()}"
        elif path.is_file():
            yield name, path.read_bytes()


def house(folder: Path, before: str) -> Path:
    """A models folder in which `bge` is what `before` says."""
    folder.mkdir()
    (folder / "models.toml").write_text("old")
    (folder / "other.onnx").write_bytes(b"other")
    match before:
        case "upload":
            with Drafts(folder).new() as old:
                _write(old, b"old")
                (folder / "bge").symlink_to(old.content("bge").relative_to(folder))
                old.is_kept = True
        case "file":
            (folder / "bge.onnx").write_bytes(b"old")
        case "folder":
            (folder / "bge").mkdir()
            (folder / "bge" / "model.onnx").write_bytes(b"old")
    return folder


def _write(draft: Draft, content: bytes) -> None:
    draft.content("bge").mkdir()
    (draft.content("bge") / "model.onnx").write_bytes(content)


def change_of(draft: Draft, folder: Path) -> Change:
    link = folder / "bge"
    places = [p for p in (folder / "bge.onnx", link) if p.exists() and not p.is_symlink()]
    return Change(
        folder=draft.folder,
        link=link,
        target=str(draft.content("bge").relative_to(folder)),
        target_before=str(link.readlink()) if link.is_symlink() else None,
        moved=Moved(places[0], draft.replaced / places[0].name) if places else None,
        rewritten=Rewritten(folder / "models.toml", b"old", b"new"),
        entry=ENTRY,
    )


def start(folder: Path) -> None:
    """What a daemon does about uploads when it starts."""
    Drafts(folder).undo_interrupted()
    Drafts(folder).sweep()


ENTRY = ("bge", {"pinned": True})
BEFORE = ["nothing", "upload", "file", "folder"]
STEPS = ["replace", "rename", "symlink_to", "unlink", "mkdir"]


@pytest.mark.parametrize("before", BEFORE)
def test_a_change_that_settled_stays(tmp_path: Path, before: str) -> None:
    folder = house(tmp_path / "models", before)
    drafts = Drafts(folder)
    with drafts.new() as draft:
        _write(draft, b"new")
        made = change_of(draft, folder)
        made.perform()
        made.settle()
        draft.is_kept = True
    start(folder)
    assert (folder / "bge" / "model.onnx").read_bytes() == b"new"
    assert (folder / "models.toml").read_bytes() == b"new"
    assert not (folder / "bge.onnx").exists()
    assert len(list((folder / ".uploads").iterdir())) == 1
    assert {path.name for path in draft.folder.iterdir()} == {"bge", change._ENTRY}
    assert drafts.entries() == [ENTRY]


@pytest.mark.parametrize("before", BEFORE)
def test_a_change_that_is_undone_leaves_nothing(tmp_path: Path, before: str) -> None:
    folder = house(tmp_path / "models", before)
    was = snapshot(folder)
    with Drafts(folder).new() as draft:
        _write(draft, b"new")
        made = change_of(draft, folder)
        made.perform()
        assert snapshot(folder) != was
        made.undo()
    assert snapshot(folder) == was
    assert not draft.folder.exists()


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("death", range(12))
def test_a_change_that_died_half_way_is_undone_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, death: int
) -> None:
    folder = house(tmp_path / "models", before)
    was = snapshot(folder)
    with Drafts(folder).new() as draft:
        _write(draft, b"new")
        made = change_of(draft, folder)
        draft.is_kept = True  # a dead process cleans nothing up
        with monkeypatch.context() as dying:
            _die_at(dying, death)
            with suppress(Killed):
                made.perform()
    start(folder)
    assert snapshot(folder) == was
    assert not draft.folder.exists()
    start(folder)
    assert snapshot(folder) == was


def _die_at(dying: pytest.MonkeyPatch, death: int) -> None:
    """Die at the so-and-so-many-th step that changes the disk."""
    steps = 0

    def deadly(step: Any) -> Any:
        def wrapper(*arguments: Any, **more: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps > death:
                raise Killed
            return step(*arguments, **more)

        return wrapper

    for name in STEPS:
        dying.setattr(Path, name, deadly(getattr(Path, name)))


def test_what_somebody_has_changed_since_is_let_alone(tmp_path: Path) -> None:
    folder = house(tmp_path / "models", "file")
    with Drafts(folder).new() as draft:
        _write(draft, b"new")
        change_of(draft, folder).perform()
        draft.is_kept = True
    (folder / "models.toml").write_text("by hand")
    (folder / "bge").unlink()
    (folder / "bge.onnx").write_bytes(b"by hand")
    was = snapshot(folder)
    start(folder)
    assert snapshot(folder) == was


def test_an_upload_under_way_is_let_alone(tmp_path: Path) -> None:
    folder = house(tmp_path / "models", "nothing")
    with Drafts(folder).new() as draft:
        draft.body.write_bytes(b"half")
        start(folder)
        assert draft.body.exists()
    assert not draft.folder.exists()


def test_a_model_whose_link_was_removed_is_removed(tmp_path: Path) -> None:
    folder = house(tmp_path / "models", "upload")
    start(folder)
    assert len(list((folder / ".uploads").iterdir())) == 1
    (folder / "bge").unlink()
    start(folder)
    assert list((folder / ".uploads").iterdir()) == []


def test_a_torn_note_stops_nobody(tmp_path: Path) -> None:
    folder = house(tmp_path / "models", "nothing")
    with Drafts(folder).new() as draft:
        (draft.folder / change._NOTE).write_bytes(b'{"folder": 1')
        draft.is_kept = True
    start(folder)
    assert not draft.folder.exists()


def test_where_there_is_no_models_folder_there_is_nothing_to_recover(tmp_path: Path) -> None:
    start(tmp_path / "missing")
