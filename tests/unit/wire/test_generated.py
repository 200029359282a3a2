"""The generated code is what the `.proto` files say, and they say what the protocols do."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from grpc_health.v1 import health_pb2 as their_health
from tritonclient.grpc import model_config_pb2, service_pb2

from snoozeml.wire.proto import health_pb2, oip_pb2

ROOT = Path(__file__).parents[3]
CHECKED_IN = ROOT / "src/snoozeml/wire/proto"


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("proto", ROOT / "scripts/proto.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_code_that_is_checked_in_is_what_is_generated(tmp_path: Path) -> None:
    written = _generator().generate(tmp_path)
    assert {path.name for path in written} == {path.name for path in CHECKED_IN.glob("*_pb2.py*")}
    for path in written:
        assert path.read_text() == (CHECKED_IN / path.name).read_text(), "run `make proto`"


def _messages(file: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def collect(messages: Any) -> None:
        for message in messages:
            found[message.full_name] = message
            collect(message.nested_types)

    collect(file.message_types_by_name.values())
    return found


def _signature(field: Any) -> tuple[object, ...]:
    inner = field.message_type or field.enum_type
    return field.number, field.type, field.is_repeated, inner.full_name if inner else None


PAIRS = [
    (oip_pb2.DESCRIPTOR, [service_pb2.DESCRIPTOR, model_config_pb2.DESCRIPTOR]),
    (health_pb2.DESCRIPTOR, [their_health.DESCRIPTOR]),
]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=["oip", "health"])
def test_names_and_numbers_are_the_protocols(ours: Any, theirs: Any) -> None:
    known = {name: message for file in theirs for name, message in _messages(file).items()}
    for name, message in _messages(ours).items():
        for field in message.fields:
            assert _signature(field) == _signature(known[name].fields_by_name[field.name])
    enums = {name: enum for file in theirs for name, enum in file.enum_types_by_name.items()}
    for name, enum in ours.enum_types_by_name.items():
        assert {v.name: v.number for v in enum.values} == {
            v.name: v.number for v in enums[name].values
        }


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=["oip", "health"])
def test_methods_are_the_protocols(ours: Any, theirs: Any) -> None:
    services = {s.full_name: s for file in theirs for s in file.services_by_name.values()}
    for service in ours.services_by_name.values():
        for method in service.methods:
            known = services[service.full_name].methods_by_name[method.name]
            assert method.input_type.full_name == known.input_type.full_name
            assert method.output_type.full_name == known.output_type.full_name
            assert method.client_streaming == known.client_streaming
            assert method.server_streaming == known.server_streaming
