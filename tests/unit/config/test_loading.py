"""Where settings come from, and which of them wins."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snoozeml.config.keys import DEFAULTS_KEYS, MODEL_KEYS, SERVER_KEYS
from snoozeml.config.loading import ConfigError, Overrides, load
from snoozeml.config.schema import ModelConfig, ServerConfig
from unit.config.house import House


def test_without_anything_the_defaults_of_the_contract_hold(house: House) -> None:
    house.add("iris.onnx")
    configuration = house.load()
    assert configuration.server == ServerConfig(
        host="127.0.0.1", port=8080, models_dir=house.folder, config_path=None,
        cache_dir=Path("/cache"), cache_limit_bytes=10 * 1024**3,
        max_request_bytes=64 * 1024**2, spare_linger_secs=600, drain_timeout_secs=30,
        max_loaded_models=8, max_memory="80%", max_concurrent_loads=0, log_format="auto",
        log_level="info",
    )  # fmt: skip
    assert configuration.models == (
        ModelConfig(
            id="iris", path=house.folder.resolve() / "iris.onnx", format="onnx", description="",
            pinned=False, idle_timeout_secs=300, max_batch_size=16, max_batch_tokens=16384,
            max_batch_delay_ms=10,
            batching="adaptive", device="auto", min_residency_secs=10,
            autoscale_queue_threshold=32, max_replicas=4, routing_strategy="least_queue",
            max_queue=1024, request_timeout_secs=30, load_timeout_secs=120,
            exec_timeout_secs=120, threads=0,
        ),
    )  # fmt: skip


def test_the_models_folder_is_models_here(
    house: House, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    house.add("iris.onnx")
    monkeypatch.chdir(tmp_path)
    assert [model.id for model in load(Overrides(), {}).models] == ["iris"]


def test_without_a_models_folder_the_way_out_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"models: there is no such.*create it.*--models-dir"):
        load(Overrides(), {})


EVERYTHING = """
[server]
host = "::1"
port = 0
cache_dir = "cache"
cache_limit_bytes = 1
max_request_bytes = 2
spare_linger_secs = 0
drain_timeout_secs = 4.5
max_memory = "2GiB"
max_concurrent_loads = 3
log_format = "json"
log_level = "debug"

[defaults]
max_loaded_models = 3
pinned = true
idle_timeout_secs = 0
max_batch_size = 5
max_batch_tokens = 640
max_batch_delay_ms = 0
batching = "fixed"
device = "cuda:1"
min_residency_secs = 6
autoscale_queue_threshold = 7
max_replicas = 8
routing_strategy = "random"
max_queue = 9
request_timeout_secs = 0.001
load_timeout_secs = 10
exec_timeout_secs = 12
threads = 11
"""


def test_every_key_of_a_file_arrives(house: House) -> None:
    house.add("iris.onnx")
    path = house.write(EVERYTHING)
    configuration = house.load({"SNOOZE_CACHE_DIR": ""})
    assert configuration.server == ServerConfig(
        host="::1", port=0, models_dir=house.folder, config_path=path.resolve(),
        cache_dir=path.resolve().parent / "cache", cache_limit_bytes=1, max_request_bytes=2,
        spare_linger_secs=0, drain_timeout_secs=4.5, max_loaded_models=3, max_memory="2GiB",
        max_concurrent_loads=3, log_format="json", log_level="debug",
    )  # fmt: skip
    assert configuration.models == (
        ModelConfig(
            id="iris", path=house.folder.resolve() / "iris.onnx", format="onnx", pinned=True,
            idle_timeout_secs=0, max_batch_size=5, max_batch_tokens=640, max_batch_delay_ms=0,
            batching="fixed", device="cuda:1", min_residency_secs=6, autoscale_queue_threshold=7,
            max_replicas=8, routing_strategy="random", max_queue=9, request_timeout_secs=0.001,
            load_timeout_secs=10, exec_timeout_secs=12, threads=11,
        ),
    )  # fmt: skip


def test_toml_and_json_and_both_forms_say_the_same(house: House) -> None:
    house.add("iris.onnx")
    forms = {
        "a.toml": '[models.iris]\npath = "iris.onnx"\nmax_batch_delay_ms = 2',
        "b.toml": '[[models]]\nid = "iris"\nmax_batch_delay_ms = 2',
        "c.json": '{"models": {"iris": {"max_batch_delay_ms": 2}}}',
        "d.json": '\ufeff{"models": [{"id": "iris", "max_batch_delay_ms": 2.0}]}',
    }
    models = [
        house.load(config_path=house.write(text, name)).models for name, text in forms.items()
    ]
    assert models == [models[0]] * 4
    assert models[0][0].max_batch_delay_ms == 2


@pytest.mark.parametrize("form", ['["rose", "Tulpe, rot"]', '"names/flowers.txt"'])
def test_labels_are_listed_or_in_a_file(house: House, form: str) -> None:
    house.add("iris.onnx", "names/flowers.txt")
    (house.folder / "names/flowers.txt").write_text("rose\r\nTulpe, rot\n")
    house.write(f"[models.iris]\nlabels = {form}\n")
    assert house.models()["iris"].labels == ("rose", "Tulpe, rot")


def test_a_named_file_stands_for_the_one_in_the_models_folder(house: House) -> None:
    house.add("iris.onnx")
    house.write("[server]\nport = 1")
    other = house.write("[server]\nport = 2", "other.toml")
    assert house.load(config_path=other).server.port == 2


def test_paths_in_a_file_start_from_its_folder(house: House, tmp_path: Path) -> None:
    etc = House(tmp_path / "etc")
    etc.add("near.onnx")
    house.add("iris.onnx")
    path = etc.write('[server]\nmodels_dir = "../models"\n[models.near]\npath = "near.onnx"')
    configuration = load(Overrides(config_path=path), {})
    assert [model.id for model in configuration.models] == ["iris", "near"]
    assert configuration.server.models_dir == house.folder.resolve()


def test_paths_in_flags_and_variables_start_from_the_working_directory(
    house: House, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    house.write("[server]\nport = 3", "x.toml")
    monkeypatch.chdir(tmp_path)
    server = load(
        Overrides(models_dir=Path("models")),
        {"SNOOZE_CONFIG_PATH": "models/x.toml", "SNOOZE_CACHE_DIR": "models/../cache"},
    ).server
    assert server.port == 3
    assert server.models_dir == tmp_path.resolve() / "models"
    assert server.cache_dir == tmp_path.resolve() / "cache"


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"SNOOZE_CACHE_DIR": "/a", "XDG_CACHE_HOME": "/b"}, "/a"),
        ({"SNOOZE_CACHE_DIR": "~/c"}, "/home/somebody/c"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/snoozeml"),
        ({"XDG_CACHE_HOME": "relative"}, "/home/somebody/.cache/snoozeml"),
        ({"SNOOZE_CACHE_DIR": "", "XDG_CACHE_HOME": ""}, "/home/somebody/.cache/snoozeml"),
    ],
)
def test_where_the_cache_is(
    house: House, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], folder: str
) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    server = load(Overrides(models_dir=house.folder), environ).server
    assert server.cache_dir == Path(folder)


def test_without_a_home_the_cache_must_be_named(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(_uid: int) -> None:
        raise KeyError

    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", nobody)
    with pytest.raises(ConfigError, match="SNOOZE_CACHE_DIR: must be set"):
        load(Overrides(models_dir=house.folder), {})


def test_variables_reach_every_key(house: House) -> None:
    house.add("iris.onnx")
    house.write('[server]\nhost = "a"\n[models.iris]\nmax_batch_size = 1\npinned = true')
    environ = {
        "SNOOZE_HOST": "b", "SNOOZE_MAX_BATCH_SIZE": "2", "SNOOZE_PINNED": "false",
        "SNOOZE_MAX_BATCH_DELAY_MS": "0.5", "SNOOZE_MAX_LOADED_MODELS": "3",
    }  # fmt: skip
    configuration = house.load(environ)
    (iris,) = configuration.models
    assert (configuration.server.host, configuration.server.max_loaded_models) == ("b", 3)
    assert (iris.max_batch_size, iris.pinned, iris.max_batch_delay_ms) == (2, False, 0.5)


def test_other_and_empty_variables_are_let_alone(house: House) -> None:
    environ = {"SNOOZE_API_KEY": "x", "SNOOZE_PORTS": "x", "SNOOZE_PORT": "", "PORT": "x"}
    assert house.load(environ).server.port == 8080


# One strategy for each kind of value; JSON carries what they draw without loss.
SECONDS = st.floats(0.001, 1e6) | st.integers(1, 10**6)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "pinned": st.booleans(),
    "idle_timeout_secs": SECONDS,
    "max_batch_size": st.integers(1, 65535),
    "max_batch_tokens": st.integers(1, 2**31 - 1),
    "max_batch_delay_ms": st.floats(0, 60_000),
    "batching": st.sampled_from(["adaptive", "fixed", "off"]),
    "precision": st.sampled_from(["fp32", "int8"]),
    "device": st.sampled_from(["auto", "cpu", "cuda", "tensorrt", "coreml"])
    | st.integers(0, 99).map("cuda:{}".format),
    "min_residency_secs": SECONDS,
    "autoscale_queue_threshold": st.integers(1, 10**6),
    "max_replicas": st.integers(1, 10**6),
    "routing_strategy": st.sampled_from(["least_queue", "round_robin", "random"]),
    "max_queue": st.integers(1, 10**6),
    "request_timeout_secs": SECONDS,
    "load_timeout_secs": SECONDS,
    "exec_timeout_secs": SECONDS,
    "sandbox": st.booleans(),
    "threads": st.integers(0, 1024),
}
FLAGS = ("max_batch_size", "max_batch_delay_ms")
LAYER = st.fixed_dictionaries({}, optional=VALUES)
FLAG_LAYER = st.fixed_dictionaries({}, optional={key: VALUES[key] for key in FLAGS})


def test_the_strategies_cover_every_key() -> None:
    assert VALUES.keys() == DEFAULTS_KEYS.keys() & MODEL_KEYS.keys()


@given(flags=FLAG_LAYER, environ=LAYER, entry=LAYER, defaults=LAYER)
def test_the_first_layer_that_gives_a_setting_wins(
    flags: dict[str, Any], environ: dict[str, Any], entry: dict[str, Any], defaults: dict[str, Any]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        house = House(Path(folder))
        house.add("iris.onnx", "other.onnx")
        house.write(json.dumps({"defaults": defaults, "models": {"iris": entry}}), "models.json")
        variables = {f"SNOOZE_{key.upper()}": _as_text(value) for key, value in environ.items()}
        iris, other = house.load(variables, **flags).models
    _assert_layered(iris, [flags, environ, entry, defaults])
    _assert_layered(other, [flags, environ, defaults])


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _assert_layered(model: ModelConfig, layers: list[dict[str, Any]]) -> None:
    built_in = ModelConfig(id=model.id, path=model.path, format="onnx")
    for key in VALUES:
        given_by = [layer[key] for layer in layers if key in layer]
        assert getattr(model, key) == (given_by or [getattr(built_in, key)])[0]


@given(entry=LAYER)
def test_a_resolved_model_written_down_loads_as_itself(entry: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        house = House(Path(folder))
        house.add("iris.onnx")
        house.write(json.dumps({"models": {"iris": entry}}), "models.json")
        first = house.load()
        written = msgspec.to_builtins(first.models[0], enc_hook=str)
        del written["format"]
        house.write(json.dumps({"models": [written]}), "models.json")
        assert house.load() == first


def test_every_place_has_its_keys() -> None:
    model, server = set(ModelConfig.__struct_fields__), set(ServerConfig.__struct_fields__)
    assert set(MODEL_KEYS) == model - {"id", "format"}
    assert set(DEFAULTS_KEYS) == (model - {"id", "format", "path", "description", "labels"}) | {
        "max_loaded_models"
    }
    assert set(SERVER_KEYS) == server - {"config_path", "max_loaded_models"}


def test_a_thousand_models_load_quickly_and_nothing_changes(house: House) -> None:
    house.add(*(f"m{number}.onnx" for number in range(500)))
    house.add(*(f"f{number}/model.onnx" for number in range(500)))
    house.write(
        "\n".join(f"[models.m{n}]\nmax_batch_size = 3\ndevice = 'cpu'" for n in range(500))
        + "\n".join(f"\n[models.f{n}]\npath = 'f{n}/model.onnx'" for n in range(500))
    )
    before = _tree(house.folder)
    started = time.process_time()
    first = house.load()
    took_s = time.process_time() - started
    assert house.load() == first
    assert len(first.models) == 1000
    assert _tree(house.folder) == before
    assert took_s < 1  # about 0.1 s on one slow core


def _tree(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.stat().st_mtime_ns) for path in folder.rglob("*"))


ALLOWED = {"msgspec", "snoozeml", "typing_extensions"}  # the last: msgspec takes it if it is there


def test_only_light_modules_are_imported() -> None:
    script = "import sys, snoozeml.config.loading; print(*sys.modules)"
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    modules = subprocess.run(
        [sys.executable, "-c", script], env=environ, check=True, capture_output=True, text=True
    ).stdout.split()
    others = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names
    assert {name for name in others if not name.startswith("_")} <= ALLOWED
