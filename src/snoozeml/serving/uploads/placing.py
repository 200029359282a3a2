"""What must change for an upload to become the model of its id: decided here, done elsewhere."""

import os
from collections.abc import Collection
from pathlib import Path

from snoozeml.config.keys import ConfigError
from snoozeml.config.schema import Configuration, ModelConfig, Written
from snoozeml.config.writing import NEW_FILE, settings_in, with_entry
from snoozeml.errors import InvalidInput
from snoozeml.serving.uploads.change import Change, Moved, Rewritten
from snoozeml.serving.uploads.drafts import Draft
from snoozeml.serving.uploads.wish import Wish


def change_for(
    wish: Wish,
    draft: Draft,
    now: Configuration,
    models_dir: Path,
    uploaded: Collection[Written],
) -> Change:
    """How the model in a draft gets its place.

    Args:
        now: what there is at present.
        models_dir: without links.
        uploaded: entries that uploads have written.

    Raises:
        InvalidInput: there is a model of this id that may not be replaced, or something else has
            its place, or the configuration cannot be edited.
        OSError: the configuration cannot be read.
    """
    link = models_dir / wish.model_id
    before = next((model for model in now.models if model.id == wish.model_id), None)
    refuse_taken(wish, before is not None)
    place = _in_the_way(link, before, models_dir)
    rewritten, entry = _rewritten(wish, now.server.config_path or models_dir / NEW_FILE, uploaded)
    return Change(
        folder=draft.folder,
        link=link,
        target=os.path.relpath(draft.content(wish.model_id), models_dir),
        target_before=str(link.readlink()) if link.is_symlink() else None,
        moved=None if place is None else Moved(place, draft.replaced / place.name),
        rewritten=rewritten,
        entry=entry,
    )


def refuse_taken(wish: Wish, is_taken: bool) -> None:
    """Raises InvalidInput: there is such a model, and nobody said that it is to be replaced."""
    if is_taken and not wish.overwrite:
        raise InvalidInput(
            f"there is a model {wish.model_id!r} already; overwrite=true (--overwrite) replaces "
            "it, another model_id (--model-id) lets it be"
        )


def check_others(model_id: str, before: Configuration, after: Configuration) -> None:
    """Raises InvalidInput: other models are not what they were before this one got its place."""
    paths = {model.id: model.path for model in after.models}
    changed = [m.id for m in before.models if m.id != model_id and paths.get(m.id) != m.path]
    if changed:
        raise InvalidInput(
            f"replacing {model_id} would also change {', '.join(changed)}, because of how they lie "
            "in the models folder; move them apart first"
        )


def _in_the_way(link: Path, before: ModelConfig | None, models_dir: Path) -> Path | None:
    """What has to give way beside the link itself. Nothing outside the models folder does.

    Raises:
        InvalidInput: the link's place is taken by something that is not this model.
    """
    places = () if before is None else (before.path, *before.path.parents)
    if link.exists():
        if link.resolve() not in places:
            raise InvalidInput(
                f"{link.name!r} in the models folder is not a model of this id; use another one"
            )
        return None if link.is_symlink() else link
    return places[0] if models_dir in places[1:] else None


def _rewritten(
    wish: Wish, file: Path, uploaded: Collection[Written]
) -> tuple[Rewritten | None, Written | None]:
    """The configuration with the settings that were sent; None: it can stay as it is.

    Beside it the model's entry, if it then is the work of uploads alone.
    """
    before = file.read_bytes() if file.exists() else None
    text = "" if before is None else file.read_text(encoding="utf-8-sig")
    try:
        after = with_entry(file, text, wish.model_id, wish.settings)
    except ConfigError as error:
        raise InvalidInput(str(error)) from None
    rewritten = None if after == text else Rewritten(file, before, after.encode())
    there, then = (settings_in(file, each, wish.model_id) for each in (text, after))
    is_ours = there is None or (wish.model_id, there) in uploaded
    return rewritten, (wish.model_id, then) if is_ours and then is not None else None
