"""Every parser that reads bytes from outside, one entry each in `SUBJECTS`."""

import asyncio
import json
import tempfile
import tomllib
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import jwt
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import Message
from hypothesis import strategies as st

import models
from archives import named, zipped
from fuzz.mutations import Json, as_json, changes, damaged_bytes, damaged_json, damaged_text
from golden.safetensors.compare import HERE
from golden.trees.cases import golden_cases
from snoozeml.config.auth_schema import JwtRules
from snoozeml.config.document import read_document
from snoozeml.config.keys import ConfigError
from snoozeml.config.writing import with_entry
from snoozeml.core.manifest import read_manifest
from snoozeml.core.secret import Secret
from snoozeml.core.tensors import Signature, TensorSpec
from snoozeml.core.unpacking import UnpackJob
from snoozeml.errors import Internal, SnoozeError
from snoozeml.fronts.http.compression import inflate
from snoozeml.fronts.http.priority import priority_in
from snoozeml.fronts.http.request import Request
from snoozeml.fronts.http.time_limits import IN_V1, IN_V2
from snoozeml.fronts.http.upload_form import read_form
from snoozeml.prepare.safetensors.checkpoint import read_checkpoint, weight_files
from snoozeml.prepare.safetensors.model import build
from snoozeml.prepare.safetensors.sentence import read_modules
from snoozeml.prepare.source import read_source
from snoozeml.prepare.trees.forest import Forest, Malformed
from snoozeml.prepare.trees.graph import tree_graph
from snoozeml.prepare.trees.lightgbm_file import read_lightgbm
from snoozeml.prepare.trees.links import Link
from snoozeml.prepare.trees.xgboost_file import read_xgboost
from snoozeml.prepare.unpack.archive import unpack
from snoozeml.serving.auth.tokens import TokenVerifier
from snoozeml.serving.uploads.wish import FIELDS, read_wish
from snoozeml.wire.grpc_v1 import GrpcV1
from snoozeml.wire.json_v1 import JsonV1
from snoozeml.wire.oip_framing import mark
from snoozeml.wire.oip_grpc import OipGrpc
from snoozeml.wire.oip_rest import OipRest
from snoozeml.wire.proto import oip_pb2, snoozeml_pb2

MIB = 2**20


class Subject(NamedTuple):
    """A parser.

    Attributes:
        inputs: almost right ones.
        read: may raise what is in `refusals`; anything else is found.
    """

    name: str
    inputs: st.SearchStrategy[Any]
    read: Callable[[Any, Path], object]
    refusals: tuple[type[Exception], ...] = (SnoozeError,)


# Inputs: seeds, and how they are damaged.


def _binary(*seeds: bytes) -> st.SearchStrategy[bytes]:
    whole = st.builds(damaged_bytes, st.sampled_from(seeds), changes)
    return st.one_of(whole, whole, whole, st.binary(max_size=200))


def _text(*seeds: bytes) -> st.SearchStrategy[bytes]:
    damaged = st.builds(damaged_text, st.sampled_from(seeds), changes)
    return st.one_of(damaged, damaged, damaged, _binary(*seeds))


def _json(*seeds: Json) -> st.SearchStrategy[bytes]:
    damaged = st.builds(damaged_json, st.sampled_from(seeds), changes).map(as_json)
    return st.one_of(damaged, damaged, _text(*map(as_json, seeds)))


def _protobuf(*seeds: Message) -> st.SearchStrategy[bytes]:
    raw: tuple[bytes, ...] = tuple(seed.SerializeToString() for seed in seeds)
    kind, documents = type(seeds[0]), [MessageToDict(seed) for seed in seeds]

    def message(document: Json) -> bytes:
        try:
            parsed = ParseDict(document, kind(), ignore_unknown_fields=True)
            return bytes(parsed.SerializeToString())
        except (ParseError, TypeError, ValueError, AttributeError, OverflowError):
            return raw[0]

    damaged = st.builds(damaged_json, st.sampled_from(documents), changes).map(message)
    return st.one_of(damaged, _binary(*raw))


# Bodies of requests

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
                _check_named(error)
                refusals.append(error)
        if len(refusals) == len(codecs):
            raise refusals[0]

    return read


def _check_named(error: SnoozeError) -> None:
    """A bug of ours has a name too, but it is not the client's."""
    assert not isinstance(error, Internal)
    assert error.message.isprintable() or "\n" in error.message
    assert len(error.message) < 2000


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


_OIP_REST: Final = st.one_of(
    _json(*_V2).map(lambda body: mark(None) + body),
    st.builds(
        _with_binary, _json(_V2_BINARY), _binary(bytes(8)), st.sampled_from([0, 0, 0, -1, 1, 4000])
    ),
    _binary(bytes(8)).map(lambda body: mark(0) + body),
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


_COMPRESSED: Final = (_gzip(b"{}" * 99), zlib.compress(b"{}" * 99), _gzip(bytes(2 * MIB)))

_RULES: Final = JwtRules(
    secret=Secret("x" * 32), algorithm="HS256", issuer=None, audience=None, leeway_s=60
)
_TOKEN: Final = jwt.encode({"role": "admin", "sub": "me", "exp": 4e9}, "x" * 32).encode()


def _signed(claims: Json) -> bytes:
    try:
        return jwt.encode(claims, "x" * 32, "HS256").encode()
    except (TypeError, ValueError):
        return _TOKEN


_TOKENS: Final = st.one_of(
    _binary(_TOKEN),
    st.builds(
        damaged_json, st.just({"role": "admin", "roles": ["ro"], "sub": "a", "exp": 4e9}), changes
    ).map(_signed),
)

# Uploads

_FORM: Final = (
    b'--b\r\nContent-Disposition: form-data; name="model_id"\r\n\r\nbge\r\n'
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="m.onnx"\r\n'
    b"Content-Type: application/octet-stream\r\n\r\n\r\n--content--b\r\n--b--\r\n"
)


def _read_form(form: tuple[bytes, int, bytes], folder: Path) -> None:
    body, size, kind = form

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(body), size):
            yield body[at : at + size]

    target = folder / "body"
    target.unlink(missing_ok=True)
    read = asyncio.run(read_form(kind.decode("latin-1"), pieces(), target, MIB))
    read_wish(read.fields, read.file_name)


_FORMS: Final = st.tuples(
    _text(_FORM),
    st.sampled_from([7, 64, 10_000]),
    st.one_of(
        st.just(b"multipart/form-data; boundary=b"), _text(b"multipart/form-data; boundary=b")
    ),
)

_WISH: Final = {
    "model_id": "bge", "overwrite": "true", "pinned": "false", "max_batch_size": "16",
    "max_batch_delay_ms": "2.5", "device": "cpu", "description": "é", "routing_strategy": "random",
}  # fmt: skip


def _read_wish(fields: Json, _: Path) -> None:
    if isinstance(fields, dict):
        wish = read_wish({str(key): str(value) for key, value in fields.items()}, "m.zip")
        place = Path("/models", wish.model_id)
        assert place.parent == Path("/models")
        assert place.name == wish.model_id
        assert set(wish.settings) < set(FIELDS)


_FILES: Final[Json] = {
    "files": [
        {"name": "top/config.json", "mode": 0o100644, "flags": 0, "content": "{}"},
        {"name": "top/sub/model.onnx", "mode": 0o100644, "flags": 0, "content": "x" * 99},
        {"name": "top/", "mode": 0o40755, "flags": 0, "content": ""},
    ]
}


def _archive(document: Json) -> bytes:
    try:
        return zipped(
            (
                named(f["name"], mode=f["mode"] & 0xFFFF, flags=f["flags"] & 0xFFFF),
                f["content"].encode("utf-8", "replace"),
            )
            for f in document["files"]
        )
    except (TypeError, KeyError, AttributeError, ValueError):
        return _PACKED


_PACKED: Final = zipped([("top/a.onnx", b"x" * 50), ("top/sub/b", bytes(5000))])
_ARCHIVES: Final = st.one_of(
    st.builds(damaged_json, st.just(_FILES), changes).map(_archive), _binary(_PACKED)
)


def _unpack(archive: bytes, folder: Path) -> None:
    """Unpack, and see that nothing appears beside the folder."""
    packed, target = folder / "packed.zip", folder / "out" / "model"
    _remove(target)
    target.parent.mkdir(exist_ok=True)
    packed.write_bytes(archive)
    try:
        unpack(UnpackJob(archive=str(packed), folder=str(target), most_bytes=MIB))
    finally:
        assert {path.name for path in folder.iterdir()} == {"packed.zip", "out"}
        assert {path.name for path in target.parent.iterdir()} <= {"model"}
    for path in target.rglob("*"):
        assert not path.is_symlink()
        assert path.is_dir() or path.is_file()


def _remove(folder: Path) -> None:
    """Faster than shutil's, which looks at each file several times."""
    if folder.exists():
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        folder.rmdir()


# Model files


def _seeds(*cases: str) -> list[bytes]:
    return [golden_cases()[case].model for case in cases]


_XGBOOST: Final = _seeds(
    "xgboost-3.2.0/leaves-only", "xgboost-3.2.0/binary-hinge", "xgboost-3.2.0/partition",
    "xgboost-3.2.0/dart", "xgboost-3.2.0/vectors",
)  # fmt: skip
_UBJSON: Final = _seeds("xgboost-3.2.0/leaves-only-ubj", "xgboost-3.2.0/reg-gamma-base")
_LIGHTGBM: Final = _seeds("lightgbm-4.7.0/leaves-only", "lightgbm-4.7.0/partition")


def _growing(
    reader: Callable[[bytes], tuple[Forest, Link]],
) -> Callable[[bytes, Path], None]:
    """Read trees as prepare does, to the graph that the engine is given."""

    def read(content: bytes, _: Path) -> None:
        forest, link = reader(content)
        forest.check()
        tree_graph(forest, link).ByteSize()

    return read


def _header_of(file: Path) -> tuple[Json, bytes]:
    content = file.read_bytes()
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def _safetensors(header: Json, data: bytes) -> bytes:
    text = as_json(header)
    return len(text).to_bytes(8, "little") + text + data


_SMALL: Final = HERE / "mlp"
_HEADER, _DATA = _header_of(_SMALL / "model.safetensors")
_HEADERS: Final = st.one_of(
    st.builds(damaged_json, st.just(_HEADER), changes).map(
        lambda header: _safetensors(header, _DATA)
    ),
    _binary((_SMALL / "model.safetensors").read_bytes()),
)


def _read_header(content: bytes, folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(content)
    for tensor in read_checkpoint([file]).values():
        tensor.read()


class _Checkpoint(NamedTuple):
    folder: str
    config: Json
    header: Json
    modules: Json


def _checkpoint(name: str) -> _Checkpoint:
    folder = HERE / name
    listed = folder / "modules.json"
    modules = json.loads(listed.read_bytes()) if listed.exists() else None
    header, _ = _header_of(folder / "model.safetensors")
    return _Checkpoint(name, json.loads((folder / "config.json").read_bytes()), header, modules)


_CHECKPOINTS: Final = [
    _checkpoint(name)
    for name in (
        "mlp", "bert", "roberta", "distilbert", "electra", "albert", "mpnet", "deberta-v2",
        "modernbert", "nomic", "gte", "jina", "vit", "dinov2", "dinov3", "clip", "siglip",
        "sentence-mean", "sentence-dense",
    )
    if (HERE / name).exists()
]  # fmt: skip


@st.composite
def _damaged_checkpoints(draw: st.DrawFn) -> _Checkpoint:
    one = draw(st.sampled_from(_CHECKPOINTS))
    match draw(st.integers(0, 5)):
        case 0:
            return one._replace(header=damaged_json(one.header, draw(changes)))
        case 1 if one.modules is not None:
            return one._replace(modules=damaged_json(one.modules, draw(changes)))
        case _:
            return one._replace(config=damaged_json(one.config, draw(changes)))


def _build(checkpoint: _Checkpoint, folder: Path) -> None:
    """Read a checkpoint as prepare does, to the graph that the engine is given."""
    source = HERE / checkpoint.folder
    here = folder / checkpoint.folder
    if not here.exists():
        here.mkdir()
        for path in source.iterdir():
            if path.is_dir():
                (here / path.name).symlink_to(path)
    (here / "config.json").write_bytes(as_json(checkpoint.config))
    _, data = _header_of(source / "model.safetensors")
    (here / "model.safetensors").write_bytes(_safetensors(checkpoint.header, data))
    if checkpoint.modules is not None:
        (here / "modules.json").write_bytes(as_json(checkpoint.modules))
    build(here, weight_files(here), read_modules(here))


def _onnx_seeds() -> Iterator[bytes]:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        yield models.identity_model(folder / "a.onnx").read_bytes()
        yield models.linear_model(folder / "b.onnx").read_bytes()
        yield models.external_data_model(folder / "c.onnx").read_bytes()


def _read_onnx(content: bytes, folder: Path) -> None:
    file = folder / "model.onnx"
    file.write_bytes(content)
    (folder / "data").write_bytes(bytes(1000))
    read_source(file)


# Configuration

_TOML: Final = (
    b"""
[server]
port = 8080
max_memory = "80%"

[defaults]
max_batch_size = 16 # rows

[models.iris]
path = "iris.onnx"
pinned = true

[models."b.c"]
device = "cuda:1"
""",
    b"""
[[models]]
id = "iris"
max_batch_delay_ms = 2.5

[auth]
enabled = true

[[auth.api_keys]]
name = "a"
key_env = "A"
role = "admin"
models = ["b*"]

[auth.jwt]
secret_env = "B"
algorithm = "HS256"
leeway_secs = 60
""",
)


def _reading_document(name: str) -> Callable[[bytes, Path], None]:
    def read(content: bytes, folder: Path) -> None:
        file = folder / name
        file.write_bytes(content)
        read_document(file)

    return read


def _edit(content: bytes, folder: Path) -> None:
    """Write an entry into whatever is a valid file."""
    file = folder / "models.toml"
    file.write_bytes(content)
    before = read_document(file)
    text = file.read_text(encoding="utf-8-sig")
    file.write_text(with_entry(file, text, "new.one", {"pinned": True}), encoding="utf-8")
    after = read_document(file)
    assert after.entries == (*(e for e in before.entries if e.id != "new.one"), after.entries[-1])
    assert after.entries[-1].settings["pinned"] is True


_MANIFEST: Final = {
    "entrypoint": "snooze_model.py", "class": "Model", "tensor_format": "numpy",
    "env": {"A": "b"}, "batching": True,
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, "n", 4, None]}],
    "outputs": [{"name": "y", "datatype": "BYTES", "shape": [-1]}],
}  # fmt: skip


def _read_manifest(content: bytes, folder: Path) -> None:
    (folder / "snooze_model.py").touch()
    (folder / "snooze_model.json").write_bytes(content)
    manifest = read_manifest(folder)
    manifest.describe()
    assert (folder / manifest.entrypoint).resolve().is_relative_to(folder.resolve())


_BY_PREPARE: Final = (SnoozeError, Malformed)

SUBJECTS: Final = (
    Subject("bodies of v1", _json(*_V1), _decoding(JsonV1)),
    Subject("bodies of v2", _OIP_REST, _decoding(OipRest)),
    Subject("messages of snoozeml.v1", _protobuf(_GRPC_V1), _decoding(GrpcV1)),
    Subject("messages of inference", _protobuf(*_OIP_GRPC), _decoding(OipGrpc)),
    Subject("time limits", _json(*_LIMITS), _read_limits),
    Subject("compressed bodies", _binary(*_COMPRESSED), _inflate),
    Subject("tokens", _TOKENS, lambda token, _: TokenVerifier(_RULES).verify(token)),
    Subject("forms", _FORMS, _read_form),
    Subject("fields", st.builds(damaged_json, st.just(_WISH), changes), _read_wish),
    Subject("archives", _ARCHIVES, _unpack),
    Subject("safetensors", _HEADERS, _read_header),
    Subject("checkpoints", _damaged_checkpoints(), _build),
    Subject("ONNX", _binary(*_onnx_seeds()), _read_onnx),
    Subject("XGBoost JSON", _json(*map(json.loads, _XGBOOST)), _growing(read_xgboost), _BY_PREPARE),
    Subject("XGBoost UBJSON", _binary(*_UBJSON), _growing(read_xgboost), _BY_PREPARE),
    Subject("LightGBM", _text(*_LIGHTGBM), _growing(read_lightgbm), _BY_PREPARE),
    Subject("models.toml", _text(*_TOML), _reading_document("models.toml"), (ConfigError,)),
    Subject(
        "models.json",
        _json(*(tomllib.loads(text.decode()) for text in _TOML)),
        _reading_document("models.json"),
        (ConfigError,),
    ),
    Subject("edits of models.toml", _text(*_TOML), _edit, (ConfigError,)),
    Subject("snooze_model.json", _json(_MANIFEST), _read_manifest),
)
