"""What is said when an address cannot be had."""

import asyncio
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from snoozeml.config.schema import ServerConfig
from snoozeml.fronts.addresses import cannot_listen
from snoozeml.fronts.grpc.servers import Library, listen_for_grpc
from snoozeml.fronts.http.server import bind
from snoozeml.fronts.limits import ClientLimits

TAKEN = "Address already in use"


def _whole(message: str) -> str:
    return re.escape(message) + "$"


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


def test_a_port_that_is_taken_says_how_to_take_another(port: int) -> None:
    hint = "(--port takes another port, 0 a free one)"
    with pytest.raises(OSError, match=_whole(f"cannot listen on 127.0.0.1:{port}: {TAKEN} {hint}")):
        bind("127.0.0.1", port)


@pytest.mark.parametrize("library", ["native", "grpcio"])
def test_a_port_for_grpc_that_is_taken_says_so_once(
    port: int, library: Library, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = ServerConfig(
        config_path=None, models_dir=tmp_path, cache_dir=tmp_path,
        grpc_port=port, grpc_library=library,
    )  # fmt: skip

    async def listen() -> None:
        listen_for_grpc(config, ClientLimits.of(config, 10), None)

    hint = "(for gRPC; --grpc-port takes another port, --no-grpc none)"
    with pytest.raises(OSError, match=_whole(f"cannot listen on 127.0.0.1:{port}: {TAKEN} {hint}")):
        asyncio.run(listen())
    assert caplog.messages == []


def test_a_name_without_an_address_keeps_the_resolvers_words() -> None:
    error = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    assert cannot_listen("h", 1, error).strerror == f"cannot listen on h:1: {error.strerror}"
