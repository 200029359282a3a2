"""From the bytes that a client sends to a model that is served."""

import asyncio
import logging
import os
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final

from snoozeml.config.discovery import SERVED, Found, discover
from snoozeml.config.schema import Configuration, ModelConfig, ServerConfig
from snoozeml.core.disk import no_room, out_of_space
from snoozeml.core.plan import Origin
from snoozeml.core.unpacking import UnpackJob, UnpackOutcome
from snoozeml.errors import (
    DeadlineExceeded,
    InvalidInput,
    ModelFailed,
    ModelNotFound,
    Overloaded,
    PayloadTooLarge,
    PermissionDenied,
    SnoozeError,
    from_code,
)
from snoozeml.lifecycle.actor import ModelActor
from snoozeml.lifecycle.errands import run_errand
from snoozeml.lifecycle.plans import PlanStore
from snoozeml.lifecycle.registry import Registry
from snoozeml.serving.control import Control, ModelView
from snoozeml.serving.uploads.change import Change
from snoozeml.serving.uploads.drafts import Draft, Drafts
from snoozeml.serving.uploads.placing import change_for, check_others, refuse_taken
from snoozeml.serving.uploads.wish import ARCHIVE, Wish, read_wish

_log = logging.getLogger("snoozeml.uploads")

_AT_ONCE: Final = 4  # each takes a process, and the disk space of a model
_CHECK_S: Final = 600.0  # for unpacking and preparing the largest model on a slow disk


class Uploads:
    """Takes models that clients send."""

    def __init__(
        self, control: Control, registry: Registry, plans: PlanStore, server: ServerConfig
    ) -> None:
        self._control = control
        self._registry = registry
        self._plans = plans
        self._models_dir = Path(os.path.realpath(server.models_dir))
        self._drafts = Drafts(self._models_dir)
        self._allows_python = server.allow_python_upload
        self._under_way = 0
        self.most_bytes: Final = server.max_upload_bytes

    @asynccontextmanager
    async def draft(self) -> AsyncIterator[Draft]:
        """A place for an upload; on leaving, nothing is left of it unless it was registered.

        Raises:
            Overloaded: too many uploads are under way.
            PayloadTooLarge: inside, too: the disk became full.
            InvalidInput: inside, too: the models folder cannot be written.
        """
        self._control.refuse_while_draining()
        if self._under_way >= _AT_ONCE:
            raise Overloaded(f"{_AT_ONCE} uploads are under way, which is the limit")
        self._under_way += 1
        try:
            with self._telling(), self._drafts.new() as draft:
                yield draft
        finally:
            self._under_way -= 1

    def check_size(self, size_bytes: int) -> None:
        """Raises PayloadTooLarge: so much would be refused, or does not fit on the disk."""
        if size_bytes > self.most_bytes:
            raise PayloadTooLarge(
                f"the model is larger than the limit of {self.most_bytes} bytes (max_upload_bytes)"
            )
        if size_bytes > shutil.disk_usage(self._models_dir).free:
            raise no_room(self._models_dir)

    async def register(self, draft: Draft, file_name: str, fields: Mapping[str, str]) -> ModelView:
        """Check what was received, and serve it.

        If it replaces a model that is awake, that one serves until this one is ready to be loaded,
        and what it has accepted is answered.

        Args:
            file_name: what the client calls the file.
            fields: the text that came with it.

        Raises:
            InvalidInput: something about it is wrong; nothing has changed.
            PermissionDenied: it is code, which may not be uploaded here.
            SnoozeError: it cannot be served; nothing has changed.
        """
        wish = read_wish(fields, file_name)
        refuse_taken(wish, self._actor(wish.model_id) is not None)
        async with _in_time():
            checked = await self._check(draft, wish)
        try:
            await asyncio.to_thread(draft.sync)
            await self._put_in_place(draft, wish, checked)
        except BaseException:
            await asyncio.to_thread(self._plans.forget, checked)
            raise
        return self._control.model(wish.model_id)

    async def _check(self, draft: Draft, wish: Wish) -> Origin:
        """Unpack and prepare the model where it will stay."""
        content = draft.content(wish.model_id)
        if wish.suffix == ARCHIVE:
            await self._unpack(draft, content)
        else:
            content.mkdir()
            draft.body.rename(content / f"model{wish.suffix}")
        found = _only_model(content)
        if found.format == "python" and not self._allows_python:
            raise PermissionDenied(
                "this is a Python model, and uploads of code are not allowed here; put it into the "
                "models folder, or set allow_python_upload = true in [server]"
            )
        origin = Origin(found.path, found.format)
        try:
            await self._plans.ensure(origin, wish.model_id)
        except ModelFailed as error:
            raise InvalidInput(f"the model cannot be served: {error.message}") from error
        return origin

    async def _unpack(self, draft: Draft, content: Path) -> None:
        job = UnpackJob(archive=str(draft.body), folder=str(content), most_bytes=self.most_bytes)
        outcome = await run_errand(
            "snoozeml.prepare.unpack", job, UnpackOutcome, "unpacking the archive", {}
        )
        if outcome.error is not None:
            raise from_code(*outcome.error)
        draft.body.unlink()

    async def _put_in_place(self, draft: Draft, wish: Wish, checked: Origin) -> None:
        async with self._control.changes:
            now = await self._control.read()
            change = change_for(wish, draft, now, self._models_dir, self._drafts.entries())
            old = self._actor(wish.model_id)
            before = None if old is None else old.config
            was_awake = old is not None and old.public_state != "idle"
            await self._make(change, now, draft, checked)
        _log.info(
            "uploaded", extra={"fields": {"model": wish.model_id, "replaced": before is not None}}
        )
        if old is not None and was_awake:
            await self._see_off(old)
        await asyncio.to_thread(self._clear, draft, change, before)

    async def _make(
        self, change: Change, now: Configuration, draft: Draft, checked: Origin
    ) -> None:
        """Perform a change and have it count, or undo it."""
        draft.is_kept = True  # if undoing fails, the next start tries again
        try:
            await asyncio.to_thread(change.perform)
            configuration = await self._control.read()
            check_others(change.link.name, now, configuration)
            config = await self._prepared(configuration, change.link.name, checked)
            await self._take(configuration, config, now)
        except BaseException:
            change.undo()
            draft.is_kept = False
            raise
        change.settle()

    async def _take(
        self, configuration: Configuration, config: ModelConfig, now: Configuration
    ) -> None:
        """Have the model of this configuration served.

        If the version before is awake, it goes on until this one is awake, too. Where there is no
        room for both, this one is loaded when that one has left.

        Args:
            now: what counts until then.
        """
        old = self._actor(config.id)
        if old is None or old.public_state == "idle":
            self._control.take(configuration)
            return
        try:
            successor = await self._registry.awake(config)
        except ModelFailed as error:
            raise _cannot_be_loaded(error) from error
        try:
            self._control.refuse_while_draining()
        except SnoozeError:
            if successor is not None:
                self._registry.let_go(successor)
            raise
        if successor is None:
            await self._take_alone(old, configuration, now)
        else:
            self._registry.hand_over(successor)
            self._control.take(configuration)

    async def _take_alone(
        self, old: ModelActor, configuration: Configuration, now: Configuration
    ) -> None:
        """Load the new version in the place of the one before, which comes back if that fails."""
        self._control.take(configuration)
        try:
            await old.load()
        except ModelFailed as error:
            self._control.take(now)
            raise _cannot_be_loaded(error) from error
        except SnoozeError:
            return  # nothing is said against it; whoever asks for it next has it loaded

    async def _see_off(self, old: ModelActor) -> None:
        """Wait until no worker has files of the version before."""
        if self._actor(old.config.id) is not old:
            await old.close()
            return
        with suppress(SnoozeError):  # once it is awake again, all workers of before have left
            await old.load()

    async def _prepared(
        self, configuration: Configuration, model_id: str, checked: Origin
    ) -> ModelConfig:
        """See that the model was found where it was put, and prepare it for its settings."""
        config = next((m for m in configuration.models if m.id == model_id), None)
        if config is None or config.path != checked.path:
            raise InvalidInput(
                f"a model {model_id!r} would not be found in this models folder, or another one in "
                "its place; see what the folder and the configuration say about this id"
            )
        if config.origin != checked:
            async with _in_time():
                await self._plans.ensure(config.origin, model_id)
            await asyncio.to_thread(self._plans.forget, checked)
        return config

    def _clear(self, draft: Draft, change: Change, before: ModelConfig | None) -> None:
        """Remove what has been replaced."""
        draft.tidy()
        if change.target_before is not None:
            self._drafts.remove(self._models_dir / change.target_before)
        if before is not None:
            self._plans.forget(before.origin)

    def _actor(self, model_id: str) -> ModelActor | None:
        try:
            return self._registry.get(model_id)
        except ModelNotFound:
            return None

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Say what is wrong with the disk, where it is not our fault."""
        try:
            yield
        except OSError as error:
            if full := out_of_space(error, self._models_dir):
                raise full from error
            _log.warning("an upload could not be written: %s", error)
            raise InvalidInput(
                f"nothing can be uploaded here: {Path(error.filename or '').name or 'the disk'} "
                f"cannot be written ({error.strerror})"
            ) from error


@asynccontextmanager
async def _in_time() -> AsyncIterator[None]:
    """For what a process of ours does, which may hang: others wait behind it."""
    try:
        async with asyncio.timeout(_CHECK_S):
            yield
    except TimeoutError:
        raise DeadlineExceeded(f"the model was not checked within {_CHECK_S:g} s") from None


def _cannot_be_loaded(error: ModelFailed) -> InvalidInput:
    return InvalidInput(f"the model cannot be loaded: {error.message}")


def _only_model(content: Path) -> Found:
    """The model that an upload is.

    Raises:
        InvalidInput: there is none, or more than one.
    """
    found = discover(content)
    if len(found) > 1:
        names = ", ".join(str(model.path.relative_to(content.parent)) for model in found[:5])
        raise InvalidInput(f"these are {len(found)} models ({names}); send them one by one")
    if not found or content not in (found[0].path, found[0].path.parent):
        raise InvalidInput(f"there is no model at the top of the archive; supported: {SERVED}")
    return found[0]
