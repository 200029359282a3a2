"""The servers that are measured, and what is sent to them."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

from examples.sample_models import trained_iris

from e2e.client import Reply, infer_body, tensor
from e2e.daemon import Daemon, path

IRIS_BODY: Final = infer_body(tensor("X", [1, 4], [5.1, 3.5, 1.4, 0.2]))


@cache
def iris_model() -> bytes:
    """The random forest of the demo; trained once per run."""
    return trained_iris()


@contextmanager
def served(models_dir: Path, settings: str) -> Iterator[Daemon]:
    """A daemon over a folder, with a cache of prepared models of its own."""
    (models_dir / "models.toml").write_text(settings)
    with (
        tempfile.TemporaryDirectory() as cache_dir,
        Daemon(models_dir, Path(cache_dir)) as daemon,
    ):
        yield daemon
        daemon.stop()


@contextmanager
def baseline(like: Reply) -> Iterator[str]:
    """A bare uvicorn that answers with a copy of an answer; gives the URL to ask."""
    answer = {"headers": list(like.headers.items()), "body": like.body.decode()}
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.baseline"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with process.stdin as stdin:
            json.dump(answer, stdin)
        port = int(process.stdout.readline())
        yield f"http://127.0.0.1:{port}/v1/models/iris/infer"
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def infer_url(daemon: Daemon, model_id: str) -> str:
    return f"http://{daemon.ready['http']}{path(model_id, 'infer')}"


def milliseconds(seconds: Sequence[float]) -> list[float]:
    return [one * 1000 for one in seconds]
