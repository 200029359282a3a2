"""The calls that ask a model, in both services."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from typing import Final

from snoozeml.core.request import Codec, InferenceRequest, InferenceResult
from snoozeml.errors import Internal, InvalidInput, ShuttingDown, SnoozeError
from snoozeml.fronts.grpc.calls import Answer, Call, Metadata, Write
from snoozeml.fronts.grpc.heads import Head, HeadReader, oip_heads, v1_heads
from snoozeml.fronts.grpc.held import HeldMessages
from snoozeml.fronts.grpc.limits import too_large
from snoozeml.fronts.grpc.room import Room
from snoozeml.fronts.grpc.status import failure_of, request_id_of
from snoozeml.fronts.manners import fails_fast
from snoozeml.lifecycle.registry import Registry
from snoozeml.lifecycle.ticket import Ticket
from snoozeml.serving.auth import Action, Authoriser
from snoozeml.serving.inference import Serving
from snoozeml.serving.versions import check_version
from snoozeml.wire.protobuf import tag, varint

_LATEST: Final = float("inf")


class _Dialect:
    """One service's form of requests and answers.

    Args:
        answer: makes a message of a stream from an encoded answer.
        refusal: makes one that says why a request of a stream failed.
    """

    def __init__(
        self,
        codec: Codec,
        head: HeadReader,
        answer: Callable[[bytes], bytes],
        refusal: Callable[[str, SnoozeError], bytes],
    ) -> None:
        self.codec: Final = codec
        self.head: Final = head
        self.answer: Final = answer
        self.refusal: Final = refusal


class InferenceCalls:
    """Handlers of both services.

    Attributes:
        infer: `snoozeml.v1.InferenceService/Infer`
        model_infer: `inference.GRPCInferenceService/ModelInfer`
    """

    def __init__(
        self,
        serving: Serving,
        registry: Registry,
        authoriser: Authoriser,
        max_request_bytes: int,
        held: HeldMessages,
    ) -> None:
        self._serving = serving
        self._authoriser = authoriser
        self._registry = registry
        self._max_bytes = max_request_bytes
        self._held = held
        self._v1: Final = _Dialect(Codec.GRPC_V1, v1_heads(), lambda answer: answer, _v1_refusal)
        self._oip: Final = _Dialect(
            Codec.OIP_GRPC, oip_heads(), lambda answer: _field(2, answer), _oip_refusal
        )
        self.infer: Final = _Unary(self, self._v1)
        self.model_infer: Final = _Unary(self, self._oip)

    async def infer_stream(self, call: Call, messages: AsyncIterator[bytes], write: Write) -> None:
        """`snoozeml.v1.InferenceService/InferStream`"""
        await self._stream(self._v1, call, messages, write)

    async def model_stream_infer(
        self, call: Call, messages: AsyncIterator[bytes], write: Write
    ) -> None:
        """`inference.GRPCInferenceService/ModelStreamInfer`"""
        await self._stream(self._oip, call, messages, write)

    async def _stream(
        self, dialect: _Dialect, call: Call, messages: AsyncIterator[bytes], write: Write
    ) -> None:
        # Who has nothing to show ends here, rather than at each message.
        self._authoriser.check(call.credentials, Action.INFERENCE)
        with closing(Room(self._max_bytes, self._held)) as room:
            await _Stream(self, dialect, call, write, room).run(messages, self._serving)

    def head(self, dialect: _Dialect, call: Call, body: bytes) -> Head:
        """Read what a request says beside its tensors.

        Raises:
            SnoozeError: it cannot be read, or who sent it is a stranger, who hears nothing else.
        """
        try:
            return dialect.head(body)
        except InvalidInput:
            self._authoriser.check(call.credentials, Action.INFERENCE)
            raise

    def submit(self, codec: Codec, head: Head, call: Call, body: bytes) -> Ticket:
        """Ask a model.

        Raises:
            SnoozeError: why it is not asked.
        """
        caller = self._authoriser.check(call.credentials, Action.INFERENCE, head.model_id)
        config = self._registry.get(head.model_id, caller.may_use).config
        check_version(head.model_id, head.version)
        arrived_at = time.monotonic()
        timeout_s, deadline = head.timeout_s, call.deadline or _LATEST
        if timeout_s is None and call.deadline is None:
            timeout_s = config.request_timeout_secs
        if timeout_s is not None:
            deadline = min(deadline, arrived_at + timeout_s)
        wish = call.get("x-snooze-cold")
        request = InferenceRequest(
            head.model_id,
            codec,
            (body,),
            arrived_at,
            deadline,
            priority=head.priority,
            fail_fast=wish is not None and fails_fast("metadata x-snooze-cold", wish),
        )
        return self._serving.submit(request)

    def check_answer(self, result: InferenceResult) -> None:
        if len(result.body) > self._max_bytes:
            raise too_large("answer", len(result.body), self._max_bytes)


class _Unary:
    """One request, one answer; see `Asking`."""

    def __init__(self, calls: InferenceCalls, dialect: _Dialect) -> None:
        self._calls = calls
        self._dialect = dialect

    def begin(self, call: Call, body: bytes) -> Ticket:
        head = self._calls.head(self._dialect, call, body)
        return self._calls.submit(self._dialect.codec, head, call, body)

    def end(self, call: Call, result: InferenceResult) -> Answer:
        self._calls.check_answer(result)
        return Answer(result.body, _trailing(result, call))

    async def answer(self, call: Call, body: bytes) -> Answer:
        """Both steps, for servers that have a task for each call anyway."""
        return self.end(call, await self.begin(call, body).outcome())


class _Stream:
    """One call of many requests, each answered as soon as its answer is there.

    A client that does not read its answers is not read from, either.
    """

    def __init__(
        self, calls: InferenceCalls, dialect: _Dialect, call: Call, write: Write, room: Room
    ) -> None:
        self._calls = calls
        self._dialect = dialect
        self._call = call
        self._write = write
        self._room = room
        self._writing = asyncio.Lock()

    async def run(self, messages: AsyncIterator[bytes], serving: Serving) -> None:
        """Return when everything is answered that came before the client had no more to say.

        Cancelling this withdraws what is not answered yet.

        Raises:
            ShuttingDown: the server stops; what had been read is answered.
        """
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(self._read(messages, tasks))
            draining = asyncio.create_task(serving.until_draining())
            try:
                await asyncio.wait([reading, draining], return_when=asyncio.FIRST_COMPLETED)
            finally:
                draining.cancel()
                reading.cancel()
        if serving.draining:
            raise ShuttingDown("the server is shutting down and takes no new requests")

    async def _read(self, messages: AsyncIterator[bytes], tasks: asyncio.TaskGroup) -> None:
        async for body in messages:
            try:
                await self._room.enter(len(body))
            except SnoozeError as error:
                refusal = await self._outcome(body, error)
                del body
                await self._send(refusal)
            else:
                tasks.create_task(self._answer(body))
                del body  # or it would stay until the next one comes
            await self._room.for_another()

    async def _answer(self, body: bytes) -> None:
        message, size_bytes = await self._outcome(body), len(body)
        del body
        self._room.answered(size_bytes, len(message))
        await self._send(message)
        self._room.leave(len(message))

    async def _send(self, message: bytes) -> None:
        async with self._writing:
            await self._write(message)

    async def _outcome(self, body: bytes, refused: SnoozeError | None = None) -> bytes:
        dialect, request_id = self._dialect, ""
        try:
            head = self._calls.head(dialect, self._call, body)
            request_id = head.id
            if refused is not None:
                return dialect.refusal(request_id, refused)  # raised again, it would keep the body
            ticket = self._calls.submit(dialect.codec, head, self._call, body)
            result = await ticket.outcome()
            self._calls.check_answer(result)
            return dialect.answer(result.body)
        except SnoozeError as error:
            return dialect.refusal(request_id, error)
        except Exception as error:
            internal = Internal(failure_of(error, self._call).message)
            return dialect.refusal(request_id, internal)


def _trailing(result: InferenceResult, call: Call) -> Metadata:
    trailing: list[tuple[str, str | bytes]] = []
    if call.get("x-snooze-timing") is not None:  # for all calls it would cost a twentieth of them
        trailing += (
            ("x-snooze-queue-ms", f"{result.queue_s * 1000:.3f}"),
            ("x-snooze-batch-size", str(result.batch_size)),
        )
    if result.cold_start_s is not None:
        trailing.append(("x-snooze-cold-start-ms", f"{result.cold_start_s * 1000:.3f}"))
    if (request_id := request_id_of(call)) is not None:
        trailing.append(("x-request-id", request_id))
    return trailing


def _field(number: int, value: bytes) -> bytes:
    return tag(number) + varint(len(value)) + value


def _v1_refusal(request_id: str, error: SnoozeError) -> bytes:
    """A ModelInferResponse with `error`, and `parameters["id"]` if the request had one."""
    failure = _field(1, error.code.encode()) + _field(2, error.message.encode())
    entry = _field(1, b"id") + _field(2, request_id.encode())
    return (_field(4, entry) if request_id else b"") + _field(5, failure)


def _oip_refusal(request_id: str, error: SnoozeError) -> bytes:
    """A ModelStreamInferResponse with `error_message`, and `infer_response.id`."""
    return _field(1, error.message.encode()) + _field(2, _field(3, request_id.encode()))
