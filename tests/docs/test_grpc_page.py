"""The page about gRPC knows every failure and every method."""

import re
from pathlib import Path

import grpc

from snoozeml.fronts.grpc.status import STATUS
from snoozeml.wire.proto import oip_pb2, snoozeml_pb2

TEXT = (Path(__file__).parents[2] / "docs" / "grpc.md").read_text(encoding="utf-8")


def test_the_table_of_failures_is_the_one_in_the_code() -> None:
    rows = re.findall(r"^\| ([A-Z_]+) \| (`.*`) \|$", TEXT, re.MULTILINE)
    known = {code: name for name, codes in rows for code in re.findall(r"`(\w+)`", codes)}
    assert known == {
        code: next(status.name for status in grpc.StatusCode if status.value[0] == number)
        for code, number in STATUS.items()
    }


def test_every_method_is_named() -> None:
    for module in (oip_pb2, snoozeml_pb2):
        for service in module.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                assert f"`{method.name}`" in TEXT
