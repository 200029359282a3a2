"""The page about gRPC knows every failure and every method, and its client prints what it says."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import grpc
from benchmarks.stand import iris_model

from e2e.daemon import Daemon
from snoozeml.fronts.grpc.status import STATUS
from snoozeml.wire.proto import oip_pb2, snoozeml_pb2

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "grpc.md").read_text(encoding="utf-8")


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


def test_the_client_asks_and_prints_what_the_page_says(tmp_path: Path) -> None:
    (tmp_path / "iris.onnx").write_bytes(iris_model())
    (generate,) = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
    ((client, printed),) = re.findall(r"```python\n(.*?)```\n```text\n(.*?)```", TEXT, re.DOTALL)
    python, *arguments = shlex.split(generate.replace("src/", f"{ROOT}/src/"))
    assert python == "python"
    subprocess.run([sys.executable, *arguments], cwd=tmp_path, check=True)
    with Daemon(tmp_path, tmp_path / "cache") as daemon:
        client = client.replace("127.0.0.1:50051", daemon.ready["grpc"])
        done = subprocess.run(
            [sys.executable, "-c", client], cwd=tmp_path, capture_output=True, text=True
        )
        assert (done.stdout, done.stderr) == (printed, "")
        assert daemon.stop() == 0
