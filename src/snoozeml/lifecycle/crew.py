"""The workers of one model: started, watched, asked to leave, reaped.

What takes time happens here, in tasks of its own; what comes of it is told to the actor as events.
"""

import asyncio
import errno
import logging
import resource
import signal
import time
from functools import cache
from typing import Final, NamedTuple

from snoozeml.config.schema import ModelConfig
from snoozeml.core.plan import Plan, Sandbox, WorkerSpec
from snoozeml.errors import (
    Internal,
    ModelFailed,
    OutOfMemory,
    Overloaded,
    SnoozeError,
    WorkerCrashed,
)
from snoozeml.lifecycle import events
from snoozeml.lifecycle.cpu import engine_threads
from snoozeml.lifecycle.footprints import Footprints
from snoozeml.lifecycle.member import Member, Owner
from snoozeml.lifecycle.memory import OomWatch, available_bytes
from snoozeml.lifecycle.plans import PlanStore
from snoozeml.lifecycle.process import CONFINED, Launcher, describe_exit
from snoozeml.lifecycle.residency import RAM, Holding, Sizes, Wanted, fitting, total
from snoozeml.lifecycle.steward import NotWantedAnyMore, Steward
from snoozeml.lifecycle.worker import DiedLoading, Worker
from snoozeml.telemetry.metrics import Totals
from snoozeml.wire.frames import Kind

_log = logging.getLogger("snoozeml.model")

_NO_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE, -1)
"""-1 is what uvloop makes of the others where it makes a pair of sockets."""


class Surroundings(NamedTuple):
    """What every model shares.

    Attributes:
        tasks: where effects that take time run; no actor outlives it.
        cores: how many all engines together may keep busy.
        confined_launcher: starts the workers of models that nobody vouches for.
    """

    plans: PlanStore
    footprints: Footprints
    launcher: Launcher
    steward: Steward
    tasks: asyncio.TaskGroup
    totals: Totals
    oom: OomWatch
    cores: int
    confined_launcher: Launcher = CONFINED


class Crew:
    """See the module.

    Attributes:
        plan: what the workers run; None until the model has been prepared.
        cold_start_s: what the last time took, waiting for room left out.
        is_beside: another version of the model serves, and this one takes only what room is free.
        freed_bytes: what workers had taken that have been asked to leave.
    """

    def __init__(self, config: ModelConfig, around: Surroundings, owner: Owner) -> None:
        self.config = config
        self.is_beside = False
        self.plan: Plan | None = around.plans.known(config.origin)
        self.cold_start_s: float | None = None
        self.freed_bytes = 0
        self._around = around
        self._owner = owner
        self._members: dict[int, Member] = {}

    @property
    def loads(self) -> int:
        """How often the model has been woken."""
        return self._owner.statistics.cold_starts.count

    @property
    def size(self) -> int:
        """Workers that are ready."""
        return sum(member.worker is not None for member in self._members.values())

    @property
    def device(self) -> str | None:
        """Where the model runs; None while nothing is loaded."""
        workers = (member.worker for member in self._members.values())
        return next((worker.ready.device for worker in workers if worker is not None), None)

    def located(self) -> list[tuple[int, str]]:
        """Process and device of each worker that is ready."""
        workers = (member.worker for member in self._members.values())
        return [(worker.pid, worker.ready.device) for worker in workers if worker is not None]

    async def prepare(self) -> Plan:
        """The model's plan, made now if there is none yet; nothing is loaded.

        Raises:
            SnoozeError: as `PlanStore.ensure`, or it takes longer than loading may.
        """
        if self.plan is None:
            try:
                async with asyncio.timeout(self.config.load_timeout_secs):
                    self.plan = await self._around.plans.ensure(self.config.origin, self.config.id)
            except TimeoutError:
                raise self.too_slow() from None
        return self.plan

    def note_served(self, number: int) -> None:
        """A worker that is about to leave has answered requests."""
        if number in self._members:
            self._members[number].has_served = True

    def note_out_of_memory(self, number: int) -> None:
        """A worker has run out of memory, and will leave for that."""
        if number in self._members:
            self._members[number].ran_out_of_memory = True

    def worker(self, number: int) -> Worker:
        worker = self._members[number].worker
        assert worker is not None
        return worker

    def memory_bytes(self) -> int:
        """What all workers take, as the kernel counts it."""
        return sum(member.memory_bytes() for member in self._members.values())

    def vram_bytes(self) -> int | None:
        """What all workers take of their devices' own memory; None: no driver says."""
        sizes = [size for m in self._members.values() for size in m.vram_taken().values()]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None

    def holds(self) -> Holding | None:
        """What all workers take or will take; None while none has been given room."""
        all_hold = [holds for m in self._members.values() if (holds := m.holds()) is not None]
        if not all_hold:
            return None
        return Holding(total(h.takes for h in all_hold), total(h.untaken for h in all_hold))

    def needs(self) -> Sizes:
        """What another worker would take."""
        footprints, pools = self._around.footprints, self._around.steward.pools
        expected = footprints.expected(self.config)
        limits = {w: pool.limit_bytes for w in expected if (pool := pools.pool(w)) is not None}
        return fitting(expected, footprints.least(self.config), limits)

    def wish(self, member: Member) -> Wanted:
        """What is asked for when another worker is to be started."""
        others = (other for other in self._members.values() if other is not member)
        return Wanted(
            model_id=self.config.id,
            needs=self.needs(),
            is_new=not self.is_beside and all(other.claimed is None for other in others),
        )

    def too_slow(self) -> ModelFailed:
        """What a load that ran out of its time is answered with."""
        limit_s = self.config.load_timeout_secs
        return ModelFailed(
            f"model {self.config.id} was not ready within {limit_s:g} s (load_timeout_secs)"
        )

    def start(self, number: int) -> None:
        member = self._members[number] = Member(
            self.config, self.wish, self._owner, self._around.steward.pools
        )
        member.starting = self._around.tasks.create_task(self._start(number, member))
        # Not in the task itself: one that is cancelled before its first step runs none of its code.
        member.starting.add_done_callback(lambda task: self._cancelled(number, task))

    def stop(self, number: int) -> None:
        """Ask a worker to leave; one that is still starting is not needed any more."""
        member = self._members[number]
        member.asked_to_leave = True
        if member.worker is None:
            assert member.starting is not None
            member.starting.cancel()  # it tells of its end when it has cleaned up
            return
        taken = {where: size for where, size in member.taken().items() if size is not None}
        self.freed_bytes += taken.get(RAM, 0)
        self._around.footprints.learn(member.config, member.worker.ready.device, taken)
        self._around.tasks.create_task(member.worker.stop())

    def let_pack(self, number: int) -> None:
        """Let a worker pack its weights, if there is room for what that takes for a moment."""
        if self.plan is None or self.plan.packed_graph is None:
            return
        room_bytes = self._around.steward.left_bytes()
        free_bytes = available_bytes()
        if free_bytes is not None:
            room_bytes = min(room_bytes, free_bytes)
        if self.plan.packing_bytes <= room_bytes:
            self.worker(number).channel.send(Kind.PACK)

    def kill(self, number: int, because: SnoozeError | None = None) -> None:
        """End a worker at once.

        Args:
            because: what is wrong with it; None: nothing, it is just not wanted any more.
        """
        member = self._members.get(number)
        if member is None:
            return
        member.ended_because = because
        member.asked_to_leave = because is None
        if member.worker is not None:
            member.worker.kill()
        elif member.starting is not None:
            member.starting.cancel()

    async def _start(self, number: int, member: Member) -> None:
        try:
            member.worker = await self._load(number, member)
        except NotWantedAnyMore:
            self._remove(number, events.WorkerExited(number))
        except DiedLoading as death:
            self._remove(number, self._died_loading(number, death))
        except Exception as error:
            self._remove(number, events.LoadFailed(number, self._load_error(error)))
        else:
            self._around.tasks.create_task(self._watch(number, member, member.worker))
            self._owner.tell(events.WorkerReady(number))

    def _cancelled(self, number: int, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self._remove(number, events.WorkerExited(number))

    async def _load(self, number: int, member: Member) -> Worker:
        await self._around.steward.pools.wake(self._around.footprints.expected(self.config))
        async with self._around.steward.place(member):
            started_at = time.monotonic()
            async with asyncio.timeout(self.config.load_timeout_secs):
                worker = await self._launch(number)
        self._around.footprints.learn(member.config, worker.ready.device, {})
        if self.size == 0:  # another replica is not another load
            self.cold_start_s = time.monotonic() - started_at
            self._owner.statistics.cold_starts.add(self.cold_start_s)
        return worker

    async def _launch(self, number: int) -> Worker:
        config, plans = self.config, self._around.plans
        plan = await plans.ensure(config.origin, config.id)
        try:
            return await self._launch_with(plan, number)
        except ModelFailed:
            if plans.known(config.origin) == plan:
                raise
        # Somebody has emptied the cache between the look at the plan and its loading.
        return await self._launch_with(await plans.ensure(config.origin, config.id), number)

    async def _launch_with(self, plan: Plan, number: int) -> Worker:
        config, around = self.config, self._around
        self.plan = plan
        # Replicas share the cores that one would have for itself.
        cores = max(1, around.cores // (self.size + 1))
        spec = WorkerSpec(
            model_id=config.id,
            plan=plan.labelled(config.labels),
            device=config.device,
            max_batch_size=config.max_batch_size,
            max_batch_tokens=config.max_batch_tokens,
            max_batch_delay_s=config.max_batch_delay_ms / 1000,
            batching=config.batching,
            threads=engine_threads(config.threads, plan, cores),
            sandbox=self._sandbox() if plan.format == "python" else None,
        )
        worker = await Worker.start(
            around.launcher if spec.sandbox is None else around.confined_launcher,
            spec,
            lambda frames: self._owner.receive(number, frames),
            around.steward.pools.released,
        )
        for part in worker.ready.lacking:
            _warn_once(f"sandboxes are not complete: this system lacks {part}")
        return worker

    def _sandbox(self) -> Sandbox | None:
        if not self.config.sandbox:
            return None
        return Sandbox(
            required=self.config.sandbox is True,
            scratch=str(self._around.plans.scratch),
            memory_bytes=self._around.steward.pools.memory_bytes,
        )

    def _died_loading(self, number: int, death: DiedLoading) -> events.Event:
        """A process that dies may have been unlucky, where a model that is refused is broken."""
        if self._count_death(death.status) == "oom":
            error = OutOfMemory(
                f"out of memory: the kernel ended the worker of model {self.config.id} while it "
                "loaded"
            )
            return events.LoadFailed(number, error)
        return events.WorkerExited(number, death)

    def _load_error(self, error: Exception) -> SnoozeError:
        if isinstance(error, SnoozeError):
            return error
        if isinstance(error, TimeoutError):
            return self.too_slow()
        if isinstance(error, OSError) and error.errno in _NO_DESCRIPTORS:
            most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            return Overloaded(
                f"model {self.config.id} cannot be loaded at present: all {most} file descriptors "
                "of the daemon are taken; raise the limit with ulimit -n or LimitNOFILE"
            )
        _log.exception("loading failed", extra={"fields": {"model": self.config.id}})
        return Internal(f"loading model {self.config.id} failed; the server's log says why")

    async def _watch(self, number: int, member: Member, worker: Worker) -> None:
        status = await worker.exited
        if member.asked_to_leave:
            self._owner.statistics.restarts["oom"] += member.ran_out_of_memory
            self._remove(number, events.WorkerExited(number, healthy=member.has_served))
            return
        exited = self._unexpected(number, member, status)
        self._log_death(worker, exited.error)
        self._remove(number, exited)

    def _unexpected(self, number: int, member: Member, status: int | None) -> events.WorkerExited:
        """Why a worker has died that nobody had asked to leave, and whose fault that may be."""
        answered = self._owner.has_answered(number)
        name, how = self.config.id, describe_exit(status)
        if member.ended_because is not None:
            self._owner.statistics.restarts["hang"] += 1
            return events.WorkerExited(number, member.ended_because, healthy=answered, blamed=True)
        match self._count_death(status):
            case "oom":
                error = OutOfMemory(
                    f"out of memory: the worker of model {name} {how} by the kernel"
                )
                return events.WorkerExited(number, error, healthy=answered, blamed=True)
            case "killed":
                # Nobody but the kernel or a person does this: the model is innocent.
                crash = WorkerCrashed(f"the worker of model {name} {how} from outside")
                return events.WorkerExited(number, crash, healthy=True, blamed=False)
        crash = WorkerCrashed(f"the worker of model {name} {how}")
        return events.WorkerExited(number, crash, healthy=answered, blamed=True)

    def _count_death(self, status: int | None) -> str:
        """What ended a process that nobody here had asked to leave."""
        if status == -signal.SIGKILL:
            reason = "oom" if self._around.oom.killed() else "killed"
        else:
            reason = "crash"
        self._owner.statistics.restarts[reason] += 1
        return reason

    def _log_death(self, worker: Worker, error: SnoozeError | None) -> None:
        fields: dict[str, object] = {"model": self.config.id, "pid": worker.pid}
        if error is not None:
            fields["why"] = error.message
        if worker.last_output:
            fields["last_output"] = list(worker.last_output)
        _log.error("worker died", extra={"fields": fields})

    def _remove(self, number: int, news: events.Event) -> None:
        """Forget a worker that is gone; only now does its memory count as free."""
        del self._members[number]
        self._owner.tell(news)
        self._around.steward.look_again()


@cache
def _warn_once(message: str) -> None:
    _log.warning("%s", message)


def worker_settings(config: ModelConfig) -> tuple[object, ...]:
    """The settings that a worker gets when it starts, and keeps."""
    return (
        config.path,
        config.device,
        config.max_batch_size,
        config.max_batch_tokens,
        config.max_batch_delay_ms,
        config.batching,
        config.threads,
        config.sandbox,
        config.labels,
    )
