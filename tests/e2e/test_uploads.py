"""Models that clients send: every format, every refusal, and nothing left of what was refused."""

import resource
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import models
from archives import LINK, named, zipped, zipped_folder
from e2e.client import request_bytes, tensor
from e2e.conftest import Serve
from e2e.daemon import Daemon
from e2e.eventually import eventually
from e2e.uploading import HEADERS, TARGET, drafts, form, left_over, upload
from golden.safetensors.compare import HERE, requests
from golden.trees.cases import golden_cases
from python_models import python_model

X = tensor("x", [1, 1], [3])


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    """A cache of its own, because what is left in it counts."""
    return tmp_path / "cache"


@pytest.fixture
def echo(tmp_path: Path) -> bytes:
    return models.identity_model(tmp_path / "echo.onnx").read_bytes()


class Kind(NamedTuple):
    """A file that may be uploaded.

    Attributes:
        answer: what one of its outputs is for `ask`.
    """

    format: str
    file_name: str
    content: Callable[[Path], bytes]
    ask: dict[str, Any]
    answer: dict[str, Any]


def _tree(case: str, file_name: str) -> Kind:
    golden = golden_cases()[case]
    data = [None if value != value else float(value) for value in golden.features.ravel()]
    answer = {name: array.ravel().tolist() for name, array in golden.answers.items()}
    ask = tensor("features", golden.features.shape, data)
    return Kind(case.partition("-")[0], file_name, lambda _: golden.model, ask, answer)


def _checkpoint(name: str, top: str) -> Kind:
    inputs, answers = requests(HERE / name)[0]
    ((input_name, values),) = inputs.items()
    answer = {name: array.ravel().tolist() for name, array in answers.items()}
    ask = tensor(input_name, values.shape, values.ravel().tolist())
    return Kind("safetensors", "m.zip", lambda _: zipped_folder(HERE / name, top), ask, answer)


def _onnx_with_data(folder: Path) -> bytes:
    models.external_data_model(folder / "outside" / "model.onnx", features=4)
    return zipped_folder(folder / "outside")


KINDS = {
    "onnx": Kind("onnx", "m.onnx", lambda f: _bytes(models.identity_model(f / "m")), X, {"y": [3]}),
    "onnx in a zip": Kind(
        "onnx",
        "m.zip",
        lambda f: zipped([("model.onnx", _bytes(models.identity_model(f / "m")))]),
        X,
        {"y": [3]},
    ),
    "python": Kind(
        "python", "m.zip", lambda f: zipped_folder(python_model(f / "m"), "m"), X, {"y": [6]}
    ),
    "checkpoint": _checkpoint("mlp", ""),
    "checkpoint in a folder": _checkpoint("mlp", "some-model"),
    "xgboost ubj": _tree("xgboost-3.2.0/sklearn-3", "m.ubj"),
    "xgboost json": _tree("xgboost-2.1.4/rank-ndcg", "m.json"),
    "lightgbm": _tree("lightgbm-4.7.0/categories-zero-is-missing", "m.lgb.txt"),
}


def _bytes(path: Path) -> bytes:
    return path.read_bytes()


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_every_format_is_uploaded_served_and_there_after_a_restart(
    serve: Serve, models_dir: Path, tmp_path: Path, kind: Kind
) -> None:
    daemon = serve("[server]\nallow_python_upload = true\n")
    for _ in range(2):
        if daemon.request("GET", "/v1/models").json() == []:
            reply = upload(daemon, kind.content(tmp_path), kind.file_name, model_id="mine")
            assert reply.status == 200, reply
            assert reply.json() == reply.json() | {"id": "mine", "format": kind.format}
            assert reply.json()["state"] == "idle"
        outputs = daemon.infer("mine", kind.ask).outputs()
        for name, wanted in kind.answer.items():
            assert outputs[name] == pytest.approx(wanted, rel=1e-5, abs=1e-6)
        (draft,) = drafts(models_dir)
        assert [path.name for path in draft.iterdir()] == ["mine"]
        assert daemon.stop() == 0
        daemon = serve()


def test_sentence_transformers_with_their_subfolders(serve: Serve, tmp_path: Path) -> None:
    name = next(path.parent.name for path in sorted(HERE.glob("*/modules.json")))
    daemon = serve()
    reply = upload(daemon, zipped_folder(HERE / name), "encoder.zip")
    assert reply.status == 200, reply
    outputs = {output["name"] for output in reply.json()["outputs"]}
    assert "sentence_embedding" in outputs


SETTINGS = {"description": "good", "max_batch_size": "4", "max_batch_delay_ms": "2.5",
            "idle_timeout_secs": "60", "pinned": "true"}  # fmt: skip


def test_settings_are_written_down(serve: Serve, models_dir: Path, echo: bytes) -> None:
    daemon = serve("# mine\n[defaults]\nmax_batch_size = 2 # small\n")
    model = upload(daemon, echo, "echo.onnx", **SETTINGS).json()
    wanted = {"description": "good", "max_batch_size": 4, "max_batch_delay_ms": 2.5,
              "idle_timeout_secs": 60.0, "pinned": True}  # fmt: skip
    assert model == model | wanted
    text = (models_dir / "models.toml").read_text()
    assert text.startswith("# mine\n[defaults]\nmax_batch_size = 2 # small\n")
    assert tomllib.loads(text)["models"]["echo"] == wanted
    assert daemon.stop() == 0
    daemon = serve()
    assert daemon.model("echo") == daemon.model("echo") | wanted


def test_without_settings_there_is_no_configuration(
    serve: Serve, models_dir: Path, echo: bytes
) -> None:
    daemon = serve()
    assert upload(daemon, echo, "echo.onnx").status == 200
    assert {path.name for path in models_dir.iterdir()} == {".uploads", "echo"}


def bad_uploads(echo: bytes) -> dict[str, tuple[bytes, str, dict[str, str], int, str]]:
    return {
        "no model": (b"x" * 999, "m.onnx", {}, 400, "cannot be served: model.onnx is not an ONNX"),
        "half a model": (echo[:-20], "m.onnx", {}, 400, "cannot be served"),
        "no archive": (b"x" * 999, "m.zip", {}, 400, "no zip archive, or it is damaged"),
        "nothing in it": (zipped([("README", b"")]), "m.zip", {}, 400, "no model at the top"),
        "too deep": (zipped([("a/b/m.onnx", echo), ("x", b"")]), "m.zip", {}, 400, "at the top"),
        "two models": (
            zipped([("a.onnx", echo), ("b.onnx", echo)]),
            "m.zip",
            {},
            400,
            "these are 2 models (m/a.onnx, m/b.onnx); send them one by one",
        ),
        "a link": (zipped([(named("m.onnx", mode=LINK), b"/etc")]), "m.zip", {}, 400, "neither a"),
        "out of the folder": (zipped([(named("../m.onnx"), echo)]), "m.zip", {}, 400, "refused"),
        "unknown architecture": (
            zipped([("config.json", b'{"model_type": "gpt9"}'), ("model.safetensors", b"x")]),
            "m.zip",
            {},
            501,
            "gpt9",
        ),
        "python": (zipped([("snooze_model.py", b"")]), "m.zip", {}, 403, "allow_python_upload"),
        "pickle": (b"x", "m.pkl", {}, 400, "no model by its name"),
        "bad id": (echo, "m.onnx", {"model_id": "../../evil"}, 400, "not a possible model_id"),
        "bad setting": (echo, "m.onnx", {"max_batch_size": "0"}, 400, "expected a whole number"),
        "unknown field": (echo, "m.onnx", {"path": "/etc"}, 400, "'path' is no field"),
        "taken": (
            echo,
            "m.onnx",
            {"model_id": "there"},
            400,
            "overwrite=true (--overwrite) replaces it",
        ),
        "not a model's place": (
            echo,
            "m.onnx",
            {"model_id": "folder", "overwrite": "true"},
            400,
            "is not a model of this id",
        ),
        "a link that is no model": (
            echo,
            "m.onnx",
            {"model_id": "link", "overwrite": "true"},
            400,
            "is not a model of this id",
        ),
        "too many pinned": (echo, "m.onnx", {"pinned": "true"}, 400, "max_loaded_models is 1"),
        "large": (bytes(2_000_000), "m.onnx", {}, 413, "limit of 500000 bytes (max_upload_bytes)"),
        "larger": (bytes(600_000), "m.onnx", {}, 413, "limit of 500000 bytes (max_upload_bytes)"),
        "large inside": (zipped([("a", bytes(600_000))]), "m.zip", {}, 413, "unpacks to 600000"),
    }


def test_what_is_refused_leaves_nothing(
    serve: Serve, models_dir: Path, cache_dir: Path, echo: bytes
) -> None:
    (models_dir / "there.onnx").write_bytes(echo)
    (models_dir / "folder").mkdir()
    (models_dir / "link").symlink_to("folder")
    settings = "[server]\nmax_upload_bytes = 500000\n[defaults]\nmax_loaded_models = 1\n"
    daemon = serve(settings + "[models.there]\npinned = true\n")
    eventually(lambda: daemon.model("there")["state"] == "ready", "the pinned model is loaded")
    before = left_over(models_dir, cache_dir)
    listed = [model["id"] for model in daemon.request("GET", "/v1/models").json()]
    for name, (content, file_name, fields, status, why) in bad_uploads(echo).items():
        reply = upload(daemon, content, file_name, **fields)
        assert (name, reply.status) == (name, status), reply
        assert why in reply.json()["error"], (name, reply)
        assert drafts(models_dir) == [], name
        assert left_over(models_dir, cache_dir) == before, name
    assert [model["id"] for model in daemon.request("GET", "/v1/models").json()] == listed
    assert daemon.infer("there", X).status == 200


def test_what_is_no_form(serve: Serve, models_dir: Path) -> None:
    daemon = serve()
    whole = form(b"x", "m.onnx")
    json = daemon.request("POST", TARGET, b"{}")
    assert (json.status, json.json()["code"]) == (415, "unsupported_media_type")
    packed = daemon.request("POST", TARGET, whole, HEADERS | {"Content-Encoding": "gzip"})
    assert packed.status == 415
    for body in (b"", b"x", whole[:-10], whole[:40], whole.replace(b'"file"', b'"data"')):
        reply = daemon.request("POST", TARGET, body, HEADERS)
        assert reply.status == 400, reply
    assert daemon.request("GET", TARGET).status == 404  # a model may be called so
    assert drafts(models_dir) == []


def test_a_client_that_leaves_half_way_leaves_nothing(
    serve: Serve, models_dir: Path, echo: bytes
) -> None:
    daemon = serve()
    whole = request_bytes("POST", TARGET, form(echo * 1000, "m.onnx"), HEADERS)
    with daemon.connect() as connection:
        connection.send(whole[: len(whole) // 2])
        eventually(lambda: drafts(models_dir) != [], "the upload is under way")
    eventually(lambda: drafts(models_dir) == [], "nothing is left of the upload")
    assert daemon.request("GET", "/v1/models").json() == []


def test_a_limit_on_files_is_told_and_leaves_nothing(
    serve: Serve, models_dir: Path, cache_dir: Path, echo: bytes
) -> None:
    daemon = serve()
    before = left_over(models_dir, cache_dir)
    hard = resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (100_000, hard))
    for content, name in ((bytes(300_000), "m.onnx"), (zipped([("a", bytes(300_000))]), "m.zip")):
        reply = upload(daemon, content, name)
        assert (reply.status, reply.json()["code"]) == (413, "payload_too_large"), reply
        assert "larger than the 100000 bytes" in reply.json()["error"]
        assert drafts(models_dir) == []
    assert left_over(models_dir, cache_dir) == before
    resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (hard, hard))
    assert upload(daemon, echo, "m.onnx").status == 200


def test_a_models_folder_that_cannot_be_written(
    serve: Serve, models_dir: Path, echo: bytes
) -> None:
    (models_dir / ".uploads").write_bytes(b"")  # root may write read-only folders
    reply = upload(serve(), echo, "m.onnx")
    assert reply.status == 400
    assert "nothing can be uploaded here" in reply.json()["error"]


def test_a_configuration_that_cannot_be_written(
    serve: Serve, models_dir: Path, cache_dir: Path, tmp_path: Path, echo: bytes
) -> None:
    config = tmp_path / "mounted" / "snooze.toml"
    config.parent.mkdir()
    config.write_text('[server]\nmodels_dir = "../models"\n')
    (config.parent / ".snooze.toml.new").mkdir()  # in the way, as a read-only mount would be
    daemon = serve(SNOOZE_CONFIG_PATH=str(config))
    before = left_over(models_dir, cache_dir)
    reply = upload(daemon, echo, "m.onnx", pinned="true")
    assert reply.status == 400, reply
    assert "snooze.toml" in reply.json()["error"]
    assert left_over(models_dir, cache_dir) == before
    assert drafts(models_dir) == []
    assert upload(daemon, echo, "m.onnx").status == 200  # there is nothing to write


def test_a_large_upload_takes_no_memory(serve: Serve, models_dir: Path, tmp_path: Path) -> None:
    daemon = serve()
    upload(daemon, b"x", "m.onnx")
    before_bytes = _resident(daemon)
    assert upload(daemon, bytes(100_000_000), "m.onnx").status == 400
    assert _peak(daemon) < before_bytes + 16_000_000


def _resident(daemon: Daemon) -> int:
    return _status(daemon, "VmRSS:")


def _peak(daemon: Daemon) -> int:
    return _status(daemon, "VmHWM:")


def _status(daemon: Daemon, name: str) -> int:
    lines = Path(f"/proc/{daemon.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def test_uploads_may_lie_on_another_disk(
    serve: Serve, models_dir: Path, tmp_path: Path, echo: bytes
) -> None:
    (tmp_path / "large").mkdir()
    (models_dir / ".uploads").symlink_to(tmp_path / "large")
    daemon = serve()
    for overwrite in ("false", "true"):
        reply = upload(daemon, echo, "echo.onnx", overwrite=overwrite)
        assert reply.status == 200, reply
    assert len(list((tmp_path / "large").iterdir())) == 1
    assert daemon.stop() == 0
    assert serve().infer("echo", X).outputs() == {"y": [3]}
