"""What is said when an address cannot be had."""

import socket

import pytest

from snoozeml.fronts.http.server import bind


def test_a_port_that_is_taken_says_how_to_take_another() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=rf"cannot listen on 127\.0\.0\.1:{port}.*--port"):
            bind("127.0.0.1", port)
