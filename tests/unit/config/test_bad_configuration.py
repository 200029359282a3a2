"""What cannot be done as written, and what the user is told about it."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from snoozeml.config.loading import ConfigError, FlagError
from unit.config.house import House

BAD_TOML: dict[str, tuple[str, list[str]]] = {
    # unknown things
    "misspelt model key": (
        "[models.iris]\nmax_batchsize = 4",
        ['models."iris".max_batchsize: unknown key; did you mean max_batch_size?'],
    ),
    "misspelt default": (
        "[defaults]\nidle_timeout = 4",
        ["defaults.idle_timeout: unknown key; did you mean idle_timeout_secs?"],
    ),
    "misspelt server key": ("[server]\nports = 4", ["server.ports: unknown", "mean port?"]),
    "key like no other": ("[server]\nqqq = 1", ["server.qqq: unknown key; known are host, port"]),
    "key of models in server": (
        "[server]\nmax_batch_size = 4",
        ["server.max_batch_size: unknown key; it belongs in [defaults]"],
    ),
    "capacity in server": ("[server]\nmax_loaded_models = 4", ["it belongs in [defaults]"]),
    "capacity in a model": ("[models.iris]\nmax_loaded_models = 4", ["belongs in [defaults]"]),
    "server key in defaults": ("[defaults]\nport = 1", ["it belongs in [server]"]),
    "path in defaults": ('[defaults]\npath = "x"', ["it belongs in a model's own table"]),
    "description in defaults": ('[defaults]\ndescription = "x"', ["a model's own table"]),
    "id in a model's table": ('[models.iris]\nid = "iris"', ['models."iris".id: unknown key']),
    "format of a model": ('[models.iris]\nformat = "onnx"', ['"iris".format: unknown key']),
    "config_path in a file": ('[server]\nconfig_path = "x"', ["server.config_path: unknown key"]),
    "key outside any table": (
        "max_batch_size = 4",
        ["max_batch_size: unknown table; it belongs in [defaults]"],
    ),
    "misspelt table": ("[model.iris]\npinned = true", ["model: unknown table", "models?"]),
    "array of a later version": (
        '[[streams]]\nid = "x"',
        ["streams: unknown table; known are server, defaults, models, auth"],
    ),
    "id with dots and no quotes": (
        "[models.bge-v1.5]\npinned = true",
        ['models."bge-v1".5: a model has no tables', 'as in [models."bge-v1.5"]'],
    ),
    # labels
    "labels that are no list": (
        "[models.iris]\nlabels = 3",
        ['models."iris".labels: 3 was given; expected a list of texts, or a path'],
    ),
    "labels that are no text": ("[models.iris]\nlabels = [1]", ["[1] was given", "list of texts"]),
    "labels in no file": (
        '[models.iris]\nlabels = "labels.txt"',
        ['models."iris".labels: ', "/labels.txt: cannot be read: No such file"],
    ),
    "labels in a folder": ('[models.iris]\nlabels = "."', ["is not a regular file"]),
    "labels in a file of bytes": ('[models.iris]\nlabels = "bytes"', ["/bytes: is not UTF-8"]),
    "labels in a pipe": ('[models.iris]\nlabels = "pipe"', ["/pipe: is not a regular file"]),
    "labels in no possible file": ('[models.iris]\nlabels = "\\u0000"', ["expected a path"]),
    "labels in the defaults": ('[defaults]\nlabels = ["x"]', ["a model's own table"]),
    # values
    "zero rows": ("[models.iris]\nmax_batch_size = 0", ["0 was given", "from 1 to 65535"]),
    "text for a number": (
        '[models.iris]\nmax_batch_size = "16"',
        ["max_batch_size: '16' was given; expected a whole number from 1"],
    ),
    "bool for a number": ("[models.iris]\nmax_batch_size = true", ["True was given", "whole"]),
    "fraction of a row": ("[models.iris]\nmax_batch_size = 1.5", ["1.5 was given", "whole"]),
    "too many digits": ("[defaults]\nmax_queue = 99999999999999999999999", ["to 1000000"]),
    "negative delay": ("[defaults]\nmax_batch_delay_ms = -1", ["-1 was given", "0 to 60000"]),
    "delay that is no number": ("[defaults]\nmax_batch_delay_ms = nan", ["nan was given"]),
    "endless timeout": ("[defaults]\nidle_timeout_secs = inf", ["inf was given", "31536000"]),
    "bool for a duration": ("[defaults]\nidle_timeout_secs = false", ["False was given"]),
    "negative timeout": ("[models.iris]\nidle_timeout_secs = -0.1", ["-0.1 was given"]),
    "no time for a request": ("[defaults]\nrequest_timeout_secs = 0", ["a number above 0"]),
    "no time to load": ("[defaults]\nload_timeout_secs = 0.0", ["load_timeout_secs: 0.0 was"]),
    "negative residency": ("[defaults]\nmin_residency_secs = -1", ["min_residency_secs: -1"]),
    "no replica": ("[models.iris]\nmax_replicas = 0", ["max_replicas: 0 was given"]),
    "no room": ("[defaults]\nmax_loaded_models = 0", ["defaults.max_loaded_models: 0 was"]),
    "no queue": ("[models.iris]\nmax_queue = 0", ["max_queue: 0 was given"]),
    "threshold": ("[defaults]\nautoscale_queue_threshold = 0", ["threshold: 0 was given"]),
    "negative threads": ("[defaults]\nthreads = -1", ["threads: -1 was given", "0 to 1024"]),
    "unknown strategy": (
        '[defaults]\nrouting_strategy = "fastest"',
        ["'fastest' was given; expected one of least_queue, random, round_robin"],
    ),
    "unknown batching": ('[models.iris]\nbatching = "on"', ["one of adaptive, fixed, off"]),
    "bool for batching": ("[models.iris]\nbatching = false", ["False was given", "adaptive"]),
    "unknown device": ('[defaults]\ndevice = "gpu"', ["'gpu'", "auto, coreml, cpu, cuda, cuda:N"]),
    "device without its number": ('[defaults]\ndevice = "cuda:"', ["'cuda:' was given"]),
    "device with a line": ('[defaults]\ndevice = "cpu\\n"', ["device: 'cpu\\n' was given"]),
    "text for pinned": ('[models.iris]\npinned = "yes"', ["'yes' was given", "true or false"]),
    "number for pinned": ("[models.iris]\npinned = 1", ["pinned: 1 was given"]),
    "number for text": ("[models.iris]\ndescription = 3", ["description: 3", "expected text"]),
    "date for text": ("[models.iris]\ndescription = 2020-01-01", ["date", "expected text"]),
    "port out of range": ("[server]\nport = 65536", ["server.port: 65536", "0 to 65535"]),
    "text for a port": ('[server]\nport = "http"', ["server.port: 'http' was given"]),
    "empty host": ('[server]\nhost = ""', ["server.host: ''", "text that is not empty"]),
    "no bytes": ("[server]\nmax_request_bytes = 0", ["max_request_bytes: 0 was given"]),
    "more than a message": ("[server]\nmax_request_bytes = 2147483648", ["to 2147483647"]),
    "no cache": ("[server]\ncache_limit_bytes = 0", ["cache_limit_bytes: 0 was given"]),
    "unknown level": ('[server]\nlog_level = "INFO"', ["one of debug, error, info, warning"]),
    "unknown log": ('[server]\nlog_format = "text"', ["one of auto, human, json"]),
    "empty path": ('[models.iris]\npath = ""', ["path: '' was given; expected a path"]),
    "path with NUL": ('[server]\ncache_dir = "a\\u0000b"', ["server.cache_dir:", "a path"]),
    "nobody's home": ('[server]\ncache_dir = "~nobody-here/x"', ["'~nobody-here/x' was given"]),
    "number for a path": ("[models.iris]\npath = 5", ["path: 5 was given; expected a path"]),
    "moving the folder": ('[server]\nmodels_dir = "x"', ["server.models_dir:", "--models-dir"]),
    # shapes
    "server is no table": ("server = 3", ["server: 3 was given; expected a table"]),
    "defaults as a list": ("[[defaults]]\nthreads = 1", ["defaults: [", "expected a table"]),
    "models is no table": ("models = 1", ["models: 1 was given; expected a table"]),
    "model is no table": ("[models]\niris = 1", ['models."iris": 1 was given; expected a table']),
    "list of no tables": ("models = [1]", ["models, entry 1: 1 was given; expected a table"]),
    "entry without id": ("[[models]]\npinned = true", ["models, entry 1: has no id"]),
    "entry with a number": ("[[models]]\nid = 5", ["entry 1: id: 5 was given; expected text"]),
    "id twice": (
        '[[models]]\nid = "iris"\n[[models]]\nid = "iris"',
        ['models."iris": there are two entries with this id'],
    ),
    "id twice in two forms": (
        '[models."\u00e9"]\n[models."e\u0301"]',
        ["there are two entries with this id"],
    ),
    # ids and files
    "empty id": ('[models.""]\n', ["is not a possible model id: it is empty"]),
    "id with a slash": ('[models."a/b"]\n', ["it contains a slash or a backslash"]),
    "hidden id": ('[models.".iris"]\n', ["it starts with a dot"]),
    "id with a control character": ('[models."a\\tb"]\n', ["it contains a control character"]),
    "no such model": (
        "[models.iriss]\n",
        ['models."iriss": no model with this id', "did you mean iris?"],
    ),
    "like no model": ("[models.qqq]\n", ['models."qqq": no model', "give the entry the file's"]),
    "no such file": (
        '[models.x]\npath = "irys.onnx"',
        ['models."x".path: ', "irys.onnx: No such file", "; did you mean iris.onnx?"],
    ),
    "no file like it": (
        '[models.x]\npath = "nope.onnx"',
        ["nope.onnx: No such file or directory; ", "models holds iris.onnx"],
    ),
    "no such file in another folder": (
        '[models.x]\npath = "/elsewhere/iris.onnx"',
        ["elsewhere/iris.onnx: No such file or directory; check the path"],
    ),
    "file that another entry took": (
        '[models.iris]\n[models."iris.v2"]\npath = "iris.onnx"',
        ['models."iris": ', "iris.onnx is served as iris.v2 already", "the same path"],
    ),
    "file that two entries took": (
        '[models.iris]\n[models.b]\npath = "iris.onnx"\n[models.a]\npath = "iris.onnx"',
        ["iris.onnx is served as b and a already"],
    ),
    "name too long": (f'[models.x]\npath = "{"x" * 300}.onnx"', ["File name too long"]),
    "folder that is no model": (
        '[models.x]\npath = "folder"',
        ["folder is no model that we serve", "a folder with config.json and *.safetensors"],
    ),
    "device for a file": ('[models.x]\npath = "/dev/null"', ["is neither a file nor a folder"]),
    "unsupported format": (
        '[models.x]\npath = "model.pt"',
        ['models."x".path: ', "model.pt is no model that we serve; supported: .onnx, "],
    ),
    # syntax
    "broken syntax": ("[server]\nport 8080", ["is not valid TOML:", "line 2"]),
    "table twice": ("[server]\n[server]", ["is not valid TOML:", "line 2"]),
    "endless nesting": (f"x = {'[' * 5000}{']' * 5000}", ["is not valid TOML:"]),
    "endless number": (f"[server]\nport = {'9' * 5000}", ["is not valid TOML:"]),
}


@pytest.mark.parametrize("case", BAD_TOML)
def test_the_message_names_the_place_and_what_would_be_right(house: House, case: str) -> None:
    text, words = BAD_TOML[case]
    house.add("iris.onnx", "model.pt", "folder/readme")
    (house.folder / "bytes").write_bytes(b"a\xff")
    os.mkfifo(house.folder / "pipe")
    path = house.write(text)
    with pytest.raises(ConfigError) as error:
        house.load()
    assert str(path.resolve()) in str(error.value)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"server": {"port": 1,}}', ["models.json: is not valid JSON:", "line 1 column"]),
        (b'{"models": {"a": {}, "a": {}}}', ["not valid JSON: 'a' is there twice in one object"]),
        (b"[]", ["models.json: [] was given; expected a table"]),
        (b'{"server": null}', ["server: None was given; expected a table"]),
        (b'{"models": {"iris": {"max_batch_delay_ms": NaN}}}', ["nan was given"]),
        (b'{"models": {"iris": {"description": "\\ud800"}}}', ["text, in valid UTF-8"]),
        (b'{"models": {"iris": {"description": null}}}', ["None was given; expected text"]),
        (
            b'{"models": {"iris": {"labels": ["\\ud800"]}}}',
            ["labels: ", "expected a list of texts"],
        ),
        (b'{"models": {"iris": {"labels": "\\ud800"}}}', ["labels: ", "expected a path"]),
        (b'{"models": [{"id": "iris", "colour": 1}]}', ['models."iris".colour: unknown key']),
        (b'{"server": {"host": "\xff"}}', ["models.json: is not UTF-8 text: byte 21"]),
        (b"", ["models.json: is not valid JSON:"]),
    ],
)
def test_json_is_held_to_the_same(house: House, content: bytes, words: list[str]) -> None:
    house.add("iris.onnx")
    (house.folder / "models.json").write_bytes(content)
    with pytest.raises(ConfigError) as error:
        house.load()
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"port": 70000}, "--port: 70000 was given; expected a whole number from 0 to 65535"),
        ({"port": True}, "--port: True was given"),
        ({"host": ""}, "--host: '' was given"),
        ({"max_batch_size": 0}, "--max-batch-size: 0 was given"),
        ({"max_batch_delay_ms": -1.0}, "--max-delay-ms: -1.0 was given"),
        ({"log_format": "text"}, "--log-format: 'text' was given; expected one of auto, human"),
        ({"log_level": "loud"}, "--log-level: 'loud' was given"),
        ({"config_path": Path("models.yaml")}, "models.yaml: a configuration file ends in .toml"),
        ({"config_path": Path("nowhere.toml")}, "nowhere.toml: cannot be read: No such file"),
        ({"config_path": Path("/")}, "/: a configuration file ends in .toml or .json"),
    ],
)
def test_flags_are_named_as_they_are_written(
    house: House, flags: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)) as error:
        house.load(**flags)
    assert isinstance(error.value, FlagError) == message.startswith("--")


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("SNOOZE_PORT", "http", "a whole number from 0 to 65535"),
        ("SNOOZE_PORT", "tcp://10.0.0.1:8080", "a whole number"),
        ("SNOOZE_PORT", "80.5", "a whole number"),
        ("SNOOZE_MAX_BATCH_SIZE", "0", "a whole number from 1"),
        ("SNOOZE_MAX_BATCH_DELAY_MS", "nan", "a number from 0 to 60000"),
        ("SNOOZE_IDLE_TIMEOUT_SECS", "5m", "a number from 0"),
        ("SNOOZE_IDLE_TIMEOUT_SECS", "1e999", "a number from 0"),
        ("SNOOZE_PINNED", "maybe", "true or false"),
        ("SNOOZE_DEVICE", "gpu", "one of auto"),
        ("SNOOZE_BATCHING", "on", "one of adaptive"),
        ("SNOOZE_LOG_LEVEL", "INFO", "one of debug"),
        ("SNOOZE_MAX_LOADED_MODELS", "-3", "a whole number from 1"),
    ],
)
def test_variables_are_named(house: House, name: str, value: str, wanted: str) -> None:
    with pytest.raises(ConfigError) as error:
        house.load({name: value})
    assert f"{name}: '{value}' was given; expected {wanted}" in str(error.value)


def test_a_missing_file_is_sought_in_the_folders_inside_too(house: House) -> None:
    house.add("bge/model.onnx", "bge/vocabulary.onnx", "iris.onnx")
    house.write('[models.x]\npath = "bgee/model.onnx"')
    with pytest.raises(ConfigError, match=r"; did you mean bge/model\.onnx\?$"):
        house.load()


def test_of_a_full_folder_only_some_files_are_listed(house: House) -> None:
    house.add(*(f"{letter}.onnx" for letter in "abcdefg"))
    house.write('[models.x]\npath = "nope.onnx"')
    with pytest.raises(ConfigError, match=r" holds a\.onnx, b\.onnx, .*e\.onnx and 2 more$"):
        house.load()


def test_two_files_in_the_models_folder_are_both_named(house: House) -> None:
    house.write("")
    house.write("{}", "models.json")
    with pytest.raises(ConfigError, match=r"models\.toml and .*models\.json: only one"):
        house.load()


def test_a_configuration_link_that_leads_nowhere_is_not_passed_over(house: House) -> None:
    (house.folder / "models.toml").symlink_to("gone.toml")
    with pytest.raises(ConfigError, match=r"models\.toml: cannot be read: No such file"):
        house.load()


def test_a_configuration_that_is_a_folder(house: House) -> None:
    house.add("models.toml/x")
    with pytest.raises(ConfigError, match=r"models\.toml: is not a regular file"):
        house.load()


def test_a_path_that_is_no_text_is_refused(house: House, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"SNOOZE_CACHE_DIR.*expected a path that is valid UTF-8"):
        house.load({"SNOOZE_CACHE_DIR": os.fsdecode(bytes(tmp_path) + b"/\xff")})


def test_text_in_json_that_is_no_text_is_named(house: House) -> None:
    house.write('{"defaults": {"max_batch_delay_ms": "\\ud800"}}', "models.json")
    with pytest.raises(ConfigError, match=r"max_batch_delay_ms: .* was given; expected a number"):
        house.load()


def test_a_pipe_in_place_of_the_configuration_is_refused_rather_than_waited_for(
    house: House,
) -> None:
    os.mkfifo(house.folder / "models.toml")
    with pytest.raises(ConfigError, match=r"models\.toml: is not a regular file"):
        house.load()
