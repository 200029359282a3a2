"""Many clients at once, each of which checks its own answers."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from e2e.client import AsyncConnection, infer_body, tensor
from e2e.daemon import Daemon, path

INFER = "/v1/models/rnn/infer"


def question(number: int) -> bytes:
    """A body for `models.recurrent_model(features=2)` that no other client sends."""
    state = [[[number, 1]], [[0.5, 2]]]
    return infer_body(tensor("x", [1, 2], [number, -number]), tensor("state", [2, 1, 2], state))


def answer(number: int) -> list[float]:
    """`y` for `question(number)`: x plus the sum of the state over the layers."""
    return [2 * number + 0.5, 3 - number]


@dataclass
class Outcomes:
    """What became of the requests of a crowd.

    Attributes:
        refusals: status and code of each answer that was not 200.
        lost: requests that were sent and never answered, as the exception that told so.
    """

    answered: int = 0
    wrong: list[str] = field(default_factory=list)
    refusals: list[tuple[int, str]] = field(default_factory=list)
    lost: list[Exception] = field(default_factory=list)
    not_connected: int = 0

    async def more_answers(self, count: int) -> None:
        """Wait until so many more requests have been answered."""
        goal = self.answered + count
        while self.answered < goal:  # noqa: ASYNC110  an event per answer would slow the crowd down
            await asyncio.sleep(0.005)


async def ask_once(daemon: Daemon, numbers: range) -> Outcomes:
    """All numbers at the same time, each on a connection of its own."""
    outcomes = Outcomes()
    connections = [await daemon.connect_async() for _ in numbers]
    await asyncio.gather(*(_ask(c, n, outcomes) for c, n in zip(connections, numbers, strict=True)))
    for connection in connections:
        connection.close()
    return outcomes


async def queue_ms(daemon: Daemon, model_id: str, body: bytes, clients: int) -> list[float]:
    """What a crowd that comes all at once spends in the queue, as the answers tell."""
    connections = [await daemon.connect_async() for _ in range(clients)]
    asked = (one.request("POST", path(model_id, "infer"), body) for one in connections)
    replies = await asyncio.gather(*asked)
    for connection in connections:
        connection.close()
    assert {reply.status for reply in replies} == {200}
    return [float(reply.headers["x-snooze-queue-ms"]) for reply in replies]


async def ask_until(
    daemon: Daemon, clients: int, finished: Callable[[], bool], outcomes: Outcomes
) -> None:
    """Ask again and again on `clients` connections; a lost connection is opened anew.

    A client that is told that the server is going away leaves, as it should.
    """
    async with asyncio.TaskGroup() as group:
        for client in range(clients):
            group.create_task(_client(daemon, client * 1000, finished, outcomes))


async def _client(
    daemon: Daemon, number: int, finished: Callable[[], bool], outcomes: Outcomes
) -> None:
    while not finished():
        try:
            connection = await daemon.connect_async()
        except OSError:
            outcomes.not_connected += 1
            await asyncio.sleep(0.01)  # the daemon is gone or going; look at `finished` again
            continue
        code = ""
        while code in ("", "worker_crashed") and not finished():
            number += 1
            code = await _ask(connection, number, outcomes)
        connection.close()
        if code == "shutting_down":
            return


async def _ask(connection: AsyncConnection, number: int, outcomes: Outcomes) -> str:
    """Ask and note the outcome; returns the code of a refusal, `lost`, or nothing."""
    try:
        reply = await connection.request("POST", INFER, question(number))
    except (OSError, asyncio.IncompleteReadError) as error:
        outcomes.lost.append(error)
        return "lost"
    if reply.status != 200:
        code: str = reply.json()["code"]
        outcomes.refusals.append((reply.status, code))
        return code
    if reply.outputs()["y"] == answer(number):
        outcomes.answered += 1
    else:
        outcomes.wrong.append(f"{number}: {reply.outputs()}")
    return ""
