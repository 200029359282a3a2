"""Which library serves."""

import importlib
import logging
import sys
from importlib.util import find_spec
from ipaddress import ip_address
from typing import Final, Literal, Protocol

from snoozeml.config.keys import ConfigError
from snoozeml.config.schema import ServerConfig
from snoozeml.fronts.addresses import cannot_listen, resolve, written
from snoozeml.fronts.grpc.app import GrpcApp
from snoozeml.fronts.limits import ClientLimits
from snoozeml.fronts.tls import TlsFiles

# It raises what it logs, and the command says it.
logging.getLogger("pygrpc_native").addFilter(
    lambda record: not record.getMessage().startswith("gRPC server could not bind")
)

Library = Literal["auto", "native", "grpcio"]

_LIBRARIES: Final = {
    "native": ("snoozeml.fronts.grpc.native", "NativeServer"),
    "grpcio": ("snoozeml.fronts.grpc.grpcio", "GrpcioServer"),
}


class GrpcServer(Protocol):
    """Serves an application at an address that it has taken.

    Attributes:
        address: `host:port` as a URL writes it.
    """

    @property
    def address(self) -> str: ...

    async def start(self, app: GrpcApp) -> None:
        """Accept connections."""

    async def close(self) -> None:
        """Answer what has been accepted, then close the connections.

        Cancelling this leaves them open; `abort` cuts them.
        """

    async def abort(self) -> None: ...


def listen_for_grpc(
    config: ServerConfig, limits: ClientLimits, tls: TlsFiles | None
) -> GrpcServer | None:
    """Take the address for gRPC; None: it is not to be served.

    Raises:
        OSError: the address cannot be had.
        ConfigError: the library that was asked for is not installed.
    """
    if not config.grpc:
        return None
    host, port = config.host, config.grpc_port
    _, address = resolve(host, port)
    module, name = _LIBRARIES[_chosen(config.grpc_library, address, tls)]
    serve = getattr(importlib.import_module(module), name)  # the other one stays out of memory
    more = () if tls is None else (tls,)
    try:
        server: GrpcServer = serve(written(address, port), limits, *more)
    except OSError as error:
        failure = cannot_listen(host, port, error)
        hint = "for gRPC; --grpc-port takes another port, --no-grpc none"
        raise OSError(failure.errno, f"{failure.strerror} ({hint})") from error
    return server


def _chosen(library: Library, address: str, tls: TlsFiles | None) -> Library:
    """The library to take: pygrpc-native where it is there and only this machine can connect, since
    it reads whatever size a message has, unpacked, before we can refuse it. It has no TLS.
    """
    if tls is not None:
        if library == "native":
            raise ConfigError("grpc_library: native has no TLS; take grpcio, or leave it out")
        return "grpcio"
    is_there = sys.platform == "linux" and find_spec("pygrpc_native") is not None
    if library == "native" and not is_there:
        raise ConfigError(
            "grpc_library: native needs Linux and pygrpc-native: pip install pygrpc-native"
        )
    if library == "auto":
        is_home = ip_address(address.partition("%")[0]).is_loopback
        return "native" if is_there and is_home else "grpcio"
    return library
