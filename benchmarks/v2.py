"""The Open Inference Protocol over REST: beside `/v1`, and its binary form beside its JSON."""

import json
import tempfile
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

import models
from benchmarks.figures import Figure, at_least
from benchmarks.rounds import Rounds, in_turns, ratio
from benchmarks.stand import IRIS_BODY, infer_url, iris_model, served
from e2e.daemon import Daemon

_CROWD: Final = 64
_FEW: Final = 4  # clients that send images; more would only fill the machine's memory
_SIDE: Final = 224
_SETTINGS: Final = "[defaults]\nidle_timeout_secs = 0\n"
_ROW: Final = np.array([[5.1, 3.5, 1.4, 0.2]], np.float32)


def measure() -> list[Figure]:
    image = np.random.default_rng(0).random((1, 3, _SIDE, _SIDE), np.float32)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "iris.onnx").write_bytes(iris_model())
        models.fixed_batch_model(Path(folder, "image.onnx"), side=_SIDE)
        with served(Path(folder), _SETTINGS) as daemon:
            for name in ("iris", "image"):
                daemon.control(name, "load")  # prepares it
            return [*_beside_v1(daemon), *_beside_json(daemon, image)]


def _beside_v1(daemon: Daemon) -> list[Figure]:
    urls = {"v2": _url(daemon, "iris"), "v1": infer_url(daemon, "iris")}
    body, headers = _binary("X", _ROW)
    rounds = in_turns(urls, {"v2": body, "v1": IRIS_BODY}, _CROWD, 2, {"v2": headers})
    return _figures(f"{_CROWD} connections, iris", rounds, ("v2", "v1"), 0.8)


def _beside_json(daemon: Daemon, image: Any) -> list[Figure]:
    url = _url(daemon, "image")
    body, headers = _binary("image", image)
    bodies = {"binary": body, "JSON": _json("image", image)}
    rounds = in_turns(dict.fromkeys(bodies, url), bodies, _FEW, 2, {"binary": headers})
    return _figures(f"{_FEW} connections, 1x3x{_SIDE}x{_SIDE}", rounds, ("binary", "JSON"), 5.0)


def _figures(where: str, rounds: Rounds, names: tuple[str, str], bound: float) -> list[Figure]:
    raw = {name: rounds.requests_per_s(name) for name in names}
    ours, other = names
    return [
        *[
            Figure(what=f"{where}, {name}", value=median(raw[name]), unit="requests/s")
            for name in names
        ],
        rounds.disturbance(where),
        Figure(
            what=f"{where}, {ours} / {other}",
            value=ratio(raw[ours], raw[other]),
            unit="",
            bound=at_least(bound),
            raw=raw,
        ),
    ]


def _url(daemon: Daemon, model_id: str) -> str:
    return f"http://{daemon.ready['http']}/v2/models/{model_id}/infer"


def _tensor(name: str, array: Any, **how: Any) -> dict[str, Any]:
    return {"name": name, "datatype": "FP32", "shape": array.shape, **how}


def _json(name: str, array: Any) -> bytes:
    values = array.ravel().tolist()  # with all their digits, as Triton's client writes them
    return json.dumps({"inputs": [_tensor(name, array, data=values)]}).encode()


def _binary(name: str, array: Any) -> tuple[bytes, dict[str, str]]:
    """A request that wants a binary answer, and its headers."""
    tensor = _tensor(name, array, parameters={"binary_data_size": array.nbytes})
    body = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
    head = json.dumps(body).encode()
    headers = {
        "Content-Type": "application/octet-stream",
        "Inference-Header-Content-Length": str(len(head)),
    }
    return head + array.tobytes(), headers
