"""A descriptor is closed once, whenever its taking over is cancelled."""

import asyncio
import gc
import os
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from snoozeml.lifecycle.channel import Channel
from snoozeml.lifecycle.process import OutputTail


async def attach_output() -> None:
    _, write_fd = await OutputTail.attach("iris")
    os.close(write_fd)


async def open_channel() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        ours.setblocking(False)
        channel = await Channel.open(ours, lambda _: None, lambda: None)
        channel.close()


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("take_over", [attach_output, open_channel])
def test_nobody_elses_descriptor_is_closed(
    take_over: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    async def scene() -> None:
        await take_over()  # after which the loop has what it needs for itself
        await asyncio.sleep(0.01)
        before = descriptors()
        task = asyncio.create_task(take_over())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        # Whoever comes next gets the numbers that are free now.
        others = [os.open("/dev/null", os.O_RDONLY) for _ in range(8)]
        del task
        gc.collect()
        await asyncio.sleep(0.01)
        for fd in others:
            os.close(fd)
        assert descriptors() == before

    uvloop.run(scene())
