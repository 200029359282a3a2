"""The composition root: makes the parts, wires them and runs them."""

import asyncio
import logging
import os
import sys
from collections.abc import Callable

import msgspec
import uvloop

from snoozeml.config.loading import Overrides, load, models_dir
from snoozeml.config.schema import Configuration, ServerConfig
from snoozeml.core import heap
from snoozeml.errors import SnoozeError
from snoozeml.fronts.descriptors import affordable
from snoozeml.fronts.grpc.app import GrpcApp
from snoozeml.fronts.grpc.servers import GrpcServer, listen_for_grpc
from snoozeml.fronts.http.app import HttpApp
from snoozeml.fronts.http.body import BodyReader
from snoozeml.fronts.http.guard import Guard
from snoozeml.fronts.http.server import HttpServer, address_of, bind
from snoozeml.fronts.http.upload import UploadRoutes
from snoozeml.fronts.http.v1_infer import V1Infer
from snoozeml.fronts.http.v1_routes import V1Routes
from snoozeml.fronts.http.v2_infer import V2Infer
from snoozeml.fronts.http.v2_routes import V2Routes
from snoozeml.fronts.limits import ClientLimits
from snoozeml.fronts.tls import TlsFiles
from snoozeml.lifecycle.accelerators import Nvml
from snoozeml.lifecycle.cpu import usable_cores
from snoozeml.lifecycle.crew import Surroundings
from snoozeml.lifecycle.footprints import Footprints
from snoozeml.lifecycle.memory import OomWatch, parse_limit, total_bytes
from snoozeml.lifecycle.plans import PlanStore
from snoozeml.lifecycle.pools import Pools
from snoozeml.lifecycle.process import ExecLauncher, Launcher
from snoozeml.lifecycle.registry import Registry, check_pinned
from snoozeml.lifecycle.spare import SpareLauncher
from snoozeml.lifecycle.steward import Steward
from snoozeml.serving.auth import Authoriser
from snoozeml.serving.auth.exposure import concerns
from snoozeml.serving.control import Control
from snoozeml.serving.inference import Serving
from snoozeml.serving.oip import OpenInference
from snoozeml.serving.orphans import remove_orphans
from snoozeml.serving.reading import Reader
from snoozeml.serving.uploads.drafts import Drafts
from snoozeml.serving.uploads.uploads import Uploads
from snoozeml.shutdown import Front, Shutdown, leave_soon
from snoozeml.telemetry import logs
from snoozeml.telemetry.metrics import Exposition, Totals

_log = logging.getLogger("snoozeml.daemon")


def run(overrides: Overrides, ready_fd: int | None = None) -> int:
    """Serve until a signal says stop.

    Args:
        ready_fd: gets one line of JSON that says where the daemon listens, once it does.

    Returns:
        the exit code: 0 after an orderly stop, 1 when accepted work was cut off.

    Raises:
        ConfigError: the configuration is wrong.
        OSError: the address cannot be had.
    """
    heap.share()
    environ = dict(os.environ)
    drafts = Drafts(models_dir(overrides, environ))
    drafts.undo_interrupted()

    def scan() -> Configuration:
        return load(overrides, environ, drafts.entries())

    configuration = scan()
    _forget_secrets(configuration)
    finish_log = logs.configure(configuration.server.log_format, configuration.server.log_level)

    async def serve() -> int:
        code = await Daemon(configuration, scan, drafts).serve(ready_fd)
        leave_soon(code, finish_log)
        return code

    try:
        return uvloop.run(serve())
    finally:
        finish_log()


class Daemon:
    """The whole house. Use inside a running event loop."""

    def __init__(
        self, configuration: Configuration, scan: Callable[[], Configuration], drafts: Drafts
    ) -> None:
        self._configuration = configuration
        self._scan = scan
        self._drafts = drafts
        self._concerns: set[str] = set()
        self._shutdown = Shutdown()

    async def serve(self, ready_fd: int | None) -> int:
        server = self._configuration.server
        authoriser = Authoriser(self._configuration.auth)
        totals = Totals(auth_failures=authoriser.failures)
        cores = usable_cores()
        plans = PlanStore(server.cache_dir, server.cache_limit_bytes)
        footprints = Footprints(plans)
        pools = _pools(server)
        launcher = _launcher(server)
        steward = Steward(
            lambda: registry.tenants(),
            models=server.max_loaded_models,
            pools=pools,
            loads_at_once=server.max_concurrent_loads or max(1, cores // 2),
        )
        tls = TlsFiles.of(server)

        def check(configuration: Configuration) -> None:
            models = configuration.server.max_loaded_models
            check_pinned(configuration.models, footprints, pools, models=models)
            if tls is not None:
                tls.renew()

        def apply(configuration: Configuration) -> None:
            _forget_secrets(configuration)
            authoriser.apply(configuration.auth)
            self._warn(configuration)

        check(self._configuration)
        listener = bind(server.host, server.port)
        connections = affordable(server.max_connections, fronts=1 + server.grpc)
        limits = ClientLimits.of(server, connections)
        grpc = listen_for_grpc(server, limits, tls)
        if remove_orphans(self._configuration):
            self._drafts.sweep()
        async with asyncio.TaskGroup() as tasks:
            around = Surroundings(
                plans, footprints, launcher, steward, tasks, totals, OomWatch(), cores
            )
            registry = Registry(around)
            serving = Serving(registry, totals)
            control = Control(
                registry, serving, rescan=self._scan, check=check, apply=apply, server=server
            )
            reader = Reader(registry, pools, server.max_loaded_models)
            guard, bodies = Guard(authoriser), BodyReader(server.max_request_bytes)
            app = HttpApp(
                [infer(serving, registry, authoriser, bodies) for infer in (V1Infer, V2Infer)],
                [
                    V1Routes(guard, serving, control, Exposition(totals, reader.read, tls)),
                    UploadRoutes(guard, Uploads(control, registry, plans, server)),
                    V2Routes(guard, OpenInference(serving, registry, control), bodies),
                ],
            )
            http = HttpServer(app, limits, tls)

            registry.apply(self._configuration.models)
            await http.listen(listener)
            if grpc is not None:
                await grpc.start(GrpcApp.over(serving, registry, control, authoriser, limits))
            told_to_refresh = asyncio.Event()
            self._shutdown.heed_signals(told_to_refresh.set)
            self._warn(self._configuration)
            self._announce(address_of(listener), grpc, ready_fd)
            beside = [
                tasks.create_task(self._warm_up(launcher)),
                tasks.create_task(_refresh_whenever(told_to_refresh, control)),
            ]

            await self._shutdown.asked()
            fronts: list[Front] = [http] if grpc is None else [http, grpc]
            drain_s = server.drain_timeout_secs
            orderly = await self._shutdown.carry_out(serving, registry, fronts, drain_s)
            for task in beside:
                task.cancel()
            await launcher.close()
        _log.info("stopped" if orderly else "stopped; work was cut off")
        return 0 if orderly else 1

    async def _warm_up(self, launcher: Launcher) -> None:
        if self._configuration.models:
            await launcher.warm_up()

    def _announce(self, http: str, grpc: GrpcServer | None, ready_fd: int | None) -> None:
        server, models = self._configuration.server, self._configuration.models
        grpc_at = grpc.address if grpc is not None else None
        scheme = "http" if server.tls_cert is None else "https"
        fields = {
            "http": f"{scheme}://{http}",
            "grpc": grpc_at or "none",
            "models": len(models),
            "models_dir": str(server.models_dir),
            "config": str(server.config_path or "none"),
            "pid": os.getpid(),
        }
        _log.info("serving", extra={"fields": fields})
        if ready_fd is not None:
            line = msgspec.json.encode({"http": http, "grpc": grpc_at, "pid": os.getpid()}) + b"\n"
            with os.fdopen(ready_fd, "wb") as ready:
                ready.write(line)

    def _warn(self, configuration: Configuration) -> None:
        """Say once what is more open, or less of a model, than it may have been meant."""
        for concern in (*concerns(configuration), *configuration.overlooked):
            if concern not in self._concerns:
                self._concerns.add(concern)
                _log.warning("%s", concern)


def _forget_secrets(configuration: Configuration) -> None:
    """Take the secrets out of the environment, which every child of ours inherits."""
    for variable in configuration.auth.variables:
        os.environ.pop(variable, None)


async def _refresh_whenever(told: asyncio.Event, control: Control) -> None:
    while True:
        await told.wait()
        told.clear()
        try:
            await control.refresh()
        except SnoozeError as error:
            _log.warning("told to refresh, but %s", error.message)
        except Exception:
            _log.exception("refreshing failed")


def _pools(server: ServerConfig) -> Pools:
    memory_bytes = parse_limit(server.max_memory, total_bytes())
    return Pools(memory_bytes=memory_bytes, max_vram=server.max_vram, accelerators=Nvml())


def _launcher(server: ServerConfig) -> Launcher:
    # Forking is safe only where the system libraries do not start threads behind our back.
    if server.spare_linger_secs and sys.platform == "linux":
        return SpareLauncher(server.spare_linger_secs)
    return ExecLauncher()
