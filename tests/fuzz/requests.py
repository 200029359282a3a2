"""The parsers of requests: bodies of each dialect, their heads, and what carries them."""

import asyncio
import re
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Protocol

import jwt
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send

from fuzz.mutations import Json
from fuzz.subject import MIB, Subject, binary, document, json_text, protobuf, text, weighted
from snoozeml.config.auth_schema import ApiKey, AuthConfig, JwtRules
from snoozeml.core.roles import Role
from snoozeml.core.secret import Secret
from snoozeml.core.tensors import Signature, TensorSpec
from snoozeml.errors import InvalidInput, SnoozeError
from snoozeml.fronts.grpc.heads import head_of_oip, head_of_v1
from snoozeml.fronts.http.app import HttpApp
from snoozeml.fronts.http.body import BodyReader
from snoozeml.fronts.http.compression import inflate
from snoozeml.fronts.http.priority import priority_in
from snoozeml.fronts.http.replies import send_reply
from snoozeml.fronts.http.request import Request
from snoozeml.fronts.http.server import HttpServer
from snoozeml.fronts.http.time_limits import IN_V1, IN_V2
from snoozeml.fronts.limits import ClientLimits
from snoozeml.serving.auth import Action, Authoriser, Credentials
from snoozeml.wire.grpc_v1 import GrpcV1
from snoozeml.wire.json_v1 import JsonV1
from snoozeml.wire.oip_framing import mark
from snoozeml.wire.oip_grpc import OipGrpc
from snoozeml.wire.oip_rest import OipRest
from snoozeml.wire.proto import oip_pb2, snoozeml_pb2

_SIGNATURES: Final = (
    Signature(
        (TensorSpec("x", "FP32", (None, 2), 0),),
        (TensorSpec("y", "INT64", (None,), 0), TensorSpec("z", "FP32", (None, 3), 0)),
    ),
    Signature(
        (
            TensorSpec("ids", "INT64", ("batch", "length"), 0),
            TensorSpec("mask", "BOOL", ("batch", "length"), 0),
            TensorSpec("text", "BYTES", (None,), None),
            TensorSpec("half", "FP16", (None, 2), 0),
        ),
        (TensorSpec("y", "FP32", ("batch", "length", 8), 0),),
    ),
    Signature((), (), open_inputs=True, open_outputs=True),
)


class _Codec(Protocol):
    def decode(self, body: bytes) -> object: ...


def _decoding(codec: Callable[[str, Signature], _Codec]) -> Callable[[bytes, Path], None]:
    codecs = [codec("m", signature) for signature in _SIGNATURES]

    def read(body: bytes, _: Path) -> None:
        refusals = []
        for each in codecs:
            try:
                each.decode(body)
            except SnoozeError as error:
                refusals.append(error)
        if len(refusals) == len(codecs):
            raise refusals[0]

    return read


def _tensor(name: str, shape: list[int], data: Json, datatype: str) -> Json:
    return {"name": name, "shape": shape, "data": data, "datatype": datatype}


_TENSORS: Final[Json] = [
    [_tensor("x", [2, 2], [[1, 2.5], [3, None]], "FP32")],
    [
        _tensor("ids", [1, 3], [1, 2, 3], "INT64"),
        _tensor("mask", [1, 3], [True, False, 1], "BOOL"),
        _tensor("text", [2], ["a", "é"], "BYTES"),
        _tensor("half", [1, 2], [0.5, 1], "FP16"),
    ],
]
_V1: Final = [
    {"inputs": tensors, "outputs": ["y"], "parameters": {"a": 1}, "timeout_ms": 100}
    for tensors in _TENSORS
]
_V2: Final = [
    {
        "id": "7",
        "inputs": tensors,
        "outputs": [{"name": "y", "parameters": {"classification": 2, "binary_data": True}}],
        "parameters": {"timeout": 1000, "binary_data_output": True},
    }
    for tensors in _TENSORS
]
_V2_BINARY: Final = {
    "inputs": [
        {"name": "x", "shape": [1, 2], "datatype": "FP32", "parameters": {"binary_data_size": 8}}
    ]
}


def _with_binary(head: bytes, data: bytes, off_by: int) -> bytes:
    return mark(max(0, len(head) + off_by)) + head + data


_OIP_REST: Final = weighted(
    (3, json_text(*_V2).map(lambda body: mark(None) + body)),
    (
        3,
        st.builds(
            _with_binary,
            json_text(_V2_BINARY),
            weighted((3, st.just(bytes(8))), (1, binary(bytes(8)))),
            weighted((4, st.just(0)), (1, st.sampled_from([-1, 1, 4000]))),
        ),
    ),
    (1, binary(bytes(8)).map(lambda body: mark(0) + body)),
)

_FP32, _INT64 = snoozeml_pb2.DataType.DATA_TYPE_FP32, snoozeml_pb2.DataType.DATA_TYPE_INT64
_GRPC_V1: Final = snoozeml_pb2.ModelInferRequest(
    model_id="m",
    inputs=[
        snoozeml_pb2.TensorData(name="x", shape=[1, 2], data_type=_FP32, raw_data=bytes(8)),
        snoozeml_pb2.TensorData(name="ids", shape=[1, 2], data_type=_INT64, raw_data=bytes(16)),
    ],
    client_timeout_ms=5,
    parameters={"datatypes": "native", "id": "1"},
)
_OIP_GRPC: Final = (
    oip_pb2.ModelInferRequest(
        model_name="m",
        id="1",
        inputs=[
            oip_pb2.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=[1, 2]),
            oip_pb2.ModelInferRequest.InferInputTensor(name="text", datatype="BYTES", shape=[1]),
        ],
        raw_input_contents=[bytes(8), b"\x01\x00\x00\x00a"],
    ),
    oip_pb2.ModelInferRequest(
        model_name="m",
        inputs=[
            oip_pb2.ModelInferRequest.InferInputTensor(
                name="x",
                datatype="FP32",
                shape=[1, 2],
                contents=oip_pb2.InferTensorContents(fp32_contents=[1, 2]),
            )
        ],
        outputs=[oip_pb2.ModelInferRequest.InferRequestedOutputTensor(name="y")],
    ),
)


_LIMITS: Final = (
    {"timeout_ms": 100},
    {"parameters": {"timeout": 1000, "priority": 3}},
    _V1[0],
    _V2[0],
)


def _read_limits(body: bytes, _: Path) -> None:
    for limits in (IN_V1, IN_V2):
        limits.asked_for(Request({"headers": []}), [body[:50], body[50:]])
    assert priority_in([body[:50], body[50:]]) >= 0


def _inflate(body: bytes, _: Path) -> None:
    encoding = b"gzip" if body[:1] == b"\x1f" else b"deflate"
    inflated = inflate([body[:7], body[7:]], encoding, MIB)
    assert sum(map(len, inflated)) <= MIB


def _gzip(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=31)
    return packer.compress(data) + packer.flush()


# Heads


def _read_head(head_of: Callable[[bytes], object]) -> Callable[[bytes, Path], None]:
    def read(body: bytes, _: Path) -> None:
        head_of(body)

    return read


# Compression


def _packed(content: bytes, times: int, wbits: int) -> bytes:
    packer = zlib.compressobj(wbits=wbits)
    return packer.compress(content * times) + packer.flush()


_GZIP: Final = 31
_COMPRESSED: Final = weighted(
    (2, binary(*(_packed(b"{}", 99, wbits) for wbits in (_GZIP, zlib.MAX_WBITS)))),
    (
        3,
        st.builds(
            _packed,
            st.binary(min_size=1, max_size=40),
            st.sampled_from([1, 7, 1000, 60_000]),
            st.sampled_from([_GZIP, _GZIP, zlib.MAX_WBITS, -zlib.MAX_WBITS]),
        ),
    ),
)


# Credentials

_KEY: Final = ApiKey(name="k", digest=bytes(32), role=Role.READONLY, models=("m*",))
_RULES: Final = JwtRules(
    secret=Secret("x" * 32), algorithm="HS256", issuer=None, audience=None, leeway_s=60
)
_AUTHORISER: Final = Authoriser(AuthConfig(enabled=True, api_keys=(_KEY,), jwt=_RULES))
_CLAIMS: Final[Json] = {
    "role": "admin",
    "roles": ["ro"],
    "sub": "a",
    "exp": 4e9,
    "nbf": 1,
    "iat": 1,
}


def _signed(claims: Json) -> bytes:
    try:
        return b"Bearer " + jwt.encode(claims, "x" * 32, "HS256").encode()
    except (TypeError, ValueError):
        return b"Bearer " + jwt.encode({"exp": 4e9}, "x" * 32).encode()


_VALUES: Final = weighted(
    (4, document(_CLAIMS).map(_signed)), (1, text(_signed(_CLAIMS), b"Bearer key"))
)
_CREDENTIALS: Final = st.lists(
    st.tuples(weighted((4, st.just(b"authorization")), (1, st.just(b"x-api-key"))), _VALUES),
    min_size=1,
    max_size=2,
)


def _read_credentials(credentials: Credentials, _: Path) -> None:
    _AUTHORISER.check(credentials, Action.READONLY, "m")


# HTTP


class _Echo:
    """Takes every POST, and gives its body back."""

    def __init__(self) -> None:
        self._bodies = BodyReader(10_000)

    @staticmethod
    def takes(path: str) -> bool:
        return True

    async def answer(self, request: Request, scope: Scope, receive: Receive, send: Send) -> None:
        await send_reply(send, 200, b"".join(await self._bodies.read(request, receive)), [])


class _AtOnce(ThreadPoolExecutor):
    """Does at once what others do in threads."""

    def submit(self, fn: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*arguments, **named))
        except Exception as error:
            done.set_exception(error)
        return done


class _Wire(asyncio.Transport):
    """Keeps what is written, as if it went out at once."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.sent = bytearray()
        self._is_closing = False

    def write(self, data: Any) -> None:
        assert not self._is_closing
        self.sent += data

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Nothing follows."""

    def close(self) -> None:
        self._is_closing = True

    abort = close

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        """Whoever is fuzzed is fed all the same."""

    resume_reading = pause_reading


_PLAIN: Final = (
    b"POST /v1/models/m/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n"
    b'Content-Type: application/json\r\nX-Request-Id: 7\r\n\r\n{"a": 1}'
)
_PIPELINED: Final = (
    b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'4;a=b\r\n{"a"\r\n4\r\n: 1}\r\n0\r\nX: y\r\n\r\n'
    b"POST /y HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
)
_ZIPPED: Final = (
    b"POST /z HTTP/1.0\r\nContent-Encoding: deflate\r\nContent-Length: 12\r\n\r\n"
    + _packed(b"{}", 4, zlib.MAX_WBITS)
)
_HOPEFUL: Final = (
    b"GET /nowhere?a=%20 HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n"
    b"Expect: 100-continue\r\n\r\n"
)
_HTTP: Final = (_PLAIN, _PIPELINED, _ZIPPED, _HOPEFUL)
_STATUS: Final = re.compile(rb"HTTP/1\.1 (\d+) ")
_TURNS: Final = 12  # of the loop, in which everything is answered that can be


def _converse(sent: tuple[bytes, int], _: Path) -> None:
    """Send bytes in pieces over a connection; every answer is a good one, or our client's fault."""
    content, size = sent
    statuses = asyncio.run(_answers(content, size))
    assert set(statuses) <= {100, 200, 204, 400, 404, 405, 413, 415, 431, 501}, statuses
    if 200 not in statuses:
        raise InvalidInput(f"{statuses}")


async def _answers(content: bytes, size: int) -> Sequence[int]:
    asyncio.get_running_loop().set_default_executor(_AtOnce())
    server, wire = HttpServer(HttpApp([_Echo()], []), ClientLimits(), None), _Wire()
    connection = server._connection()
    connection.connection_made(wire)
    for at in range(0, len(content), size):
        if wire.is_closing():
            break
        connection.data_received(content[at : at + size])
        await asyncio.sleep(0)
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    connection.connection_lost(None)
    return [int(status) for status in _STATUS.findall(wire.sent)]


SUBJECTS: Final = (
    Subject("bodies of v1", json_text(*_V1), _decoding(JsonV1)),
    Subject("bodies of v2", _OIP_REST, _decoding(OipRest)),
    Subject("messages of snoozeml.v1", protobuf(_GRPC_V1), _decoding(GrpcV1)),
    Subject("messages of inference", protobuf(*_OIP_GRPC), _decoding(OipGrpc)),
    Subject("heads of snoozeml.v1", protobuf(_GRPC_V1), _read_head(head_of_v1)),
    Subject("heads of inference", protobuf(*_OIP_GRPC), _read_head(head_of_oip)),
    Subject("time limits", json_text(*_LIMITS), _read_limits),
    Subject("compressed bodies", _COMPRESSED, _inflate),
    Subject("credentials", _CREDENTIALS, _read_credentials),
    Subject("HTTP", st.tuples(text(*_HTTP), st.sampled_from([7, 100, 10_000])), _converse),
)
