"""Files that are no checkpoint, or only claim to be one, are refused with the reason."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golden.safetensors.files import write, write_raw
from snoozeml.errors import ModelFailed
from snoozeml.prepare.safetensors.checkpoint import INDEX_FILE, read_checkpoint, weight_files
from snoozeml.wire.tensors import Array


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


def entry(**changes: Any) -> dict[str, Any]:
    """A tensor of eight bytes. Args: changes: what is different."""
    return {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changes


def floats(values: Any) -> Array:
    return np.array(values, np.float32)


def test_tensors_are_found_where_they_lie(file: Path) -> None:
    write(file, {"a": floats([1, 2]), "b": floats([[3], [4], [5]])})
    tensors = read_checkpoint([file])
    assert tensors["b"].shape == (3, 1)
    assert tensors["b"].read().tolist() == [[3], [4], [5]]


@pytest.mark.parametrize("dtype", ["F64", "F32", "F16", "BF16"])
def test_numbers_are_read_in_float32(file: Path, dtype: str) -> None:
    wanted = floats([[1.5, -2], [0, 0.25]])
    write(file, {"a": wanted}, dtype)
    got = read_checkpoint([file])["a"].read()
    assert got.dtype == np.float32
    assert np.array_equal(got, wanted)


def test_whole_numbers_are_no_weights(file: Path) -> None:
    write(file, {"a": np.arange(3)})
    with pytest.raises(ModelFailed, match="weights of type I64; supported: F64"):
        read_checkpoint([file])["a"].read()


def test_metadata_is_no_tensor(file: Path) -> None:
    write_raw(file, {"__metadata__": {"format": "pt"}, "a": entry()}, bytes(8))
    assert list(read_checkpoint([file])) == ["a"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it has 0 bytes"),
        (b"\x08\0\0", "only part of one"),
        ((1 << 62).to_bytes(8, "little") + b"{}", f"claims a header of {1 << 62}"),
        ((10 << 30).to_bytes(8, "little") + b"{}", f"claims a header of {10 << 30}"),
        ((200).to_bytes(8, "little") + b"{}", "claims a header of 200"),
        ((1).to_bytes(8, "little") + b"{}", "claims a header of 1"),
        (b"\x80\x02}q\0." + bytes(20), "not a safetensors file"),
    ],
)
def test_what_is_no_safetensors_file_is_told_apart(file: Path, content: bytes, reason: str) -> None:
    file.write_bytes(content)
    with pytest.raises(ModelFailed, match=f"model.safetensors.*{reason}"):
        read_checkpoint([file])


@pytest.mark.parametrize(
    "header",
    [b"not JSON", b"[]", b'"text"', b"{" * 9_000, b"[" * 90_000, b'{"a":' * 9_000, b"\xff\xfe"],
)
def test_a_header_that_is_no_json_object_is_refused(file: Path, header: bytes) -> None:
    write_raw(file, header)
    with pytest.raises(ModelFailed, match=r"model\.safetensors has no readable header"):
        read_checkpoint([file])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"data_offsets": [8, 16]}, "bytes 8 to 16 of the data, which has 8"),
        ({"data_offsets": [0, 10 << 30]}, "partly downloaded"),
        ({"data_offsets": [8, 0]}, "bytes 8 to 0"),
        ({"data_offsets": [-8, 0]}, ">= 0"),
        ({"data_offsets": [0]}, "length 2"),
        ({"data_offsets": [0, 1e300]}, "Expected `int`"),
        ({"data_offsets": [0, 4]}, "needs 8 bytes and has 4"),
        ({"shape": [3]}, "needs 12 bytes and has 8"),
        ({"shape": [10 << 30]}, f"needs {40 << 30} bytes"),
        ({"shape": [1 << 62, 1 << 62]}, "needs .* bytes and has 8"),
        ({"shape": [10**40]}, "tensor 'a'"),
        ({"shape": [-2]}, ">= 0"),
        ({"shape": [2.5]}, "Expected `int`"),
        ({"shape": [None]}, "Expected `int`"),
        ({"shape": 2}, "Expected `array`"),
        ({"shape": [1] * 9}, "length <= 8"),
        ({"shape": float("nan")}, "tensor 'a'|readable header"),
        ({"dtype": "F33"}, "unknown type 'F33'"),
        ({"dtype": 4}, "Expected `str`"),
        ({"dtype": "F16"}, "needs 4 bytes and has 8"),
    ],
)
def test_a_tensor_that_cannot_be_is_named(file: Path, changes: dict[str, Any], reason: str) -> None:
    write_raw(file, {"a": entry(**changes)}, bytes(8))
    with pytest.raises(ModelFailed, match=reason):
        read_checkpoint([file])


@pytest.mark.parametrize("value", [None, [], "text", {}, 1])
def test_an_entry_that_is_no_tensor_is_named(file: Path, value: Any) -> None:
    write_raw(file, {"a": value}, bytes(8))
    with pytest.raises(ModelFailed, match="tensor 'a'"):
        read_checkpoint([file])


def test_tensors_that_overlap_are_named(file: Path) -> None:
    header = {"a": entry(), "b": entry(data_offsets=[4, 12]), "c": entry(data_offsets=[12, 20])}
    write_raw(file, header, bytes(20))
    with pytest.raises(ModelFailed, match="tensors 'a' and 'b' overlap"):
        read_checkpoint([file])


def test_a_truncated_file_is_refused_wherever_it_ends(file: Path) -> None:
    write(file, {"a": floats([1, 2]), "b": floats([3])})
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        with pytest.raises(ModelFailed):
            read_checkpoint([file])


def index(folder: Path, content: Any) -> None:
    (folder / INDEX_FILE).write_text(json.dumps(content))


def test_shards_are_those_of_the_index(tmp_path: Path) -> None:
    for name in ("one", "two", "other"):
        write(tmp_path / f"{name}.safetensors", {name: floats([1])})
    index(
        tmp_path,
        {"metadata": {}, "weight_map": {"two": "two.safetensors", "one": "one.safetensors"}},
    )
    assert set(read_checkpoint(weight_files(tmp_path))) == {"one", "two"}


@pytest.mark.parametrize(
    "name", ["../model.safetensors", "/etc/passwd", "missing", "", ".", "..", "a\0b"]
)
def test_an_index_cannot_name_what_is_not_in_the_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    write(tmp_path / "model.safetensors", {"a": floats([1])})
    index(folder, {"weight_map": {"a": name}})
    with pytest.raises(ModelFailed, match=f"{INDEX_FILE} names"):
        weight_files(folder)


@pytest.mark.parametrize("content", [[], {}, {"weight_map": []}, {"weight_map": {"a": 1}}])
def test_what_is_no_index_is_refused(tmp_path: Path, content: Any) -> None:
    index(tmp_path, content)
    with pytest.raises(ModelFailed, match=f"{INDEX_FILE} is not an index"):
        weight_files(tmp_path)


def test_a_folder_must_say_which_of_several_files_is_meant(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"{name}.safetensors", {})
    with pytest.raises(ModelFailed, match=r"a\.safetensors, b\.safetensors.* name one"):
        weight_files(tmp_path)


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").mkdir()
    (tmp_path / ".model.safetensors").touch()
    with pytest.raises(ModelFailed, match="no safetensors file"):
        weight_files(tmp_path)
