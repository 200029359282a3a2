"""The file that runs a Python model's code, wherever that is."""

import ast
import socket
import threading
from array import array
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from snoozeml.core.tensors import Signature, TensorSpec
from snoozeml.errors import InferenceFailed, InvalidInput
from snoozeml.wire.tensors import DATATYPES, DTYPES, NamedArrays
from snoozeml.worker.engines.python import guest
from snoozeml.worker.engines.python.child import TooMuch, WaryChannel
from snoozeml.worker.engines.python.outputs import Outputs


def test_it_is_written_for_python_3_8() -> None:
    ast.parse(Path(guest.__file__).read_text(), feature_version=(3, 8))


@pytest.mark.parametrize("datatype", DTYPES)
def test_arrays_of_every_datatype_travel(datatype: str) -> None:
    values: Any = ["a", "é", ""] if datatype == "BYTES" else [0, 1, 1]
    for shape in ((3,), (3, 1), (0, 3), ()):
        sent = np.array(values[: int(np.prod(shape))] or values[:1], DTYPES[datatype])
        sent = sent[: int(np.prod(shape))].reshape(shape)
        name, sizes, data = guest.pack_array(sent)
        got = guest.unpack_array((name, list(sizes), bytearray(data)))
        assert name == datatype
        assert got.dtype == sent.dtype
        assert got.flags.writeable
        np.testing.assert_array_equal(got, sent)


def test_text_that_is_not_utf_8_stays_bytes() -> None:
    packed = guest.pack_array(np.array([b"\xff", "a"], object))
    assert guest.unpack_array(packed).tolist() == [b"\xff", "a"]


def test_messages_of_any_size_arrive_whole() -> None:
    ours, theirs = socket.socketpair()
    big = bytes(range(256)) * 20_000
    sent = {"a": ("UINT8", [len(big)], big), "b": ("FP32", [0], b"")}
    with ours, theirs:
        sender = threading.Thread(target=guest.Channel(ours).send, args=({"k": 1}, sent))
        sender.start()
        header, tensors = guest.Channel(theirs).receive()
        sender.join()
        assert (header, tensors) == ({"k": 1}, sent)
        ours.close()
        with pytest.raises(EOFError):
            guest.Channel(theirs).receive()


@pytest.mark.parametrize(
    "sent",
    [
        b"\xff\xff\xff\xff",
        b"\x30\0\0\0" + b'{"tensors": [["a", "UINT8", [9], 50]]}'.ljust(0x30),
        b"\x30\0\0\0" + b'{"tensors": [["a", "UINT8", [9], -1]]}'.ljust(0x30),
    ],
    ids=["a header", "a tensor", "less than nothing"],
)
def test_more_than_a_limit_is_not_waited_for(sent: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(sent)
        with pytest.raises(TooMuch):
            WaryChannel(theirs, most_bytes=90).receive()


@pytest.mark.parametrize(
    ("value", "dtype", "found"),
    [
        ([1.5, 2], np.float64, [1.5, 2.0]),
        ([1, 2], np.int64, [1, 2]),
        (3, np.int64, 3),
        (np.float32(3), np.float32, 3),
        (True, np.bool_, True),
        ("a", object, "a"),
        (["a", b"b"], object, None),
        (np.array(["ab", "c"]), object, ["ab", "c"]),
        (np.array([b"ab", b"c"]), object, [b"ab", b"c"]),
        (np.array(["a", b"b"], object), object, ["a", b"b"]),
        (np.array([1, 2], ">f4"), np.float32, [1, 2]),
        (np.array([[1, 2], [3, 4]], np.uint16).T, np.uint16, [[1, 3], [2, 4]]),
        (np.zeros((0, 2), np.int8), np.int8, []),
        (range(2), np.int64, [0, 1]),
    ],
)
def test_predict_may_return_whatever_numpy_takes(value: Any, dtype: Any, found: Any) -> None:
    array = guest.to_array("y", value)
    assert array.dtype == dtype
    assert array.dtype in DATATYPES
    assert found is None or array.tolist() == found


def test_what_was_returned_is_copied_because_the_model_may_go_on_using_it() -> None:
    kept = np.zeros(2)
    returned = guest.to_array("y", kept)
    kept += 1
    assert returned.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "'y' holds None"),
        ([[1, 2], [3]], "'y' is no tensor: .*inhomogeneous"),
        (1j, "numpy's type complex128"),
        (np.datetime64("2020-01-01"), "numpy's type datetime64"),
        (np.longdouble(1), "numpy's type"),
        ({"a": 1}, "'y' holds a dict"),
        ([Decimal(1)], "'y' holds a Decimal"),
        ([2**70], "'y' holds a int"),
        (object(), "'y' holds a object"),
    ],
)
def test_what_is_no_tensor_is_named(value: Any, words: str) -> None:
    with pytest.raises(guest.BadOutput, match=words):
        guest.to_array("y", value)


@pytest.mark.parametrize(
    ("value", "shape", "data"),
    [
        (guest.RawTensor((1, 2), array("f", [1, 2])), (1, 2), [1, 2]),
        (guest.RawTensor((2,), [1, 2]), (2,), [1, 2]),
        (SimpleNamespace(shape=[2], data=(1, 2)), (2,), [1, 2]),
        ({"shape": [2], "data": [1, 2]}, (2,), [1, 2]),
        (array("f", [1, 2]), (2,), [1, 2]),
        (array("d", [1, 2]), (2,), [1, 2]),
        (np.array([[1, 2]]), (1, 2), [1, 2]),
        (np.float64(3), (), [3]),
        ([[1, 2], [3, 4]], (2, 2), [1, 2, 3, 4]),
        (((1, 2),), (1, 2), [1, 2]),
        ([], (0,), []),
        (5, (), [5]),
        (True, (), [1]),
    ],
)
def test_raw_models_may_return_what_needs_no_numpy(value: Any, shape: Any, data: Any) -> None:
    raw = guest.to_raw("y", value)
    assert (raw.shape, raw.data.tolist()) == (shape, data)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "no tensor of numbers"),
        ("text", "no tensor of numbers"),
        ([1, "2"], "no tensor of numbers"),
        ([[1, 2], [3]], r"the shape \[2, 2\] holds 4 values, there are 3"),
        (guest.RawTensor((3,), array("f", [1])), r"the shape \[3\] holds 3 values, there are 1"),
        (SimpleNamespace(shape="ab", data=[1]), "no tensor of numbers"),
    ],
)
def test_what_is_no_raw_tensor_is_named(value: Any, words: str) -> None:
    with pytest.raises(guest.BadOutput, match=words):
        guest.to_raw("y", value)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ValueError("no"), "invalid_input", "ValueError: no"),
        (KeyError("x"), "invalid_input", "KeyError: 'x'"),
        (IndexError(), "inference_failed", "IndexError"),
        (RuntimeError("CUDA Out of Memory"), "out_of_memory", "out of memory: RuntimeError: CUDA"),
        (MemoryError(), "out_of_memory", "out of memory: MemoryError"),
        (SystemExit(3), "inference_failed", "the model's code called sys.exit(3)"),
        (OSError("/models/a/w.bin\nis gone"), "inference_failed", "OSError: w.bin is gone"),
        (RuntimeError("x" * 9999), "inference_failed", "x" * 500),
    ],
)
def test_exceptions_get_a_code_and_words_that_clients_may_see(
    error: BaseException, code: str, message: str
) -> None:
    got_code, got_message, _ = guest.running_failure(error, "/models/a")
    assert got_code == code
    assert message in got_message
    assert len(got_message) < 600
    loading = "out_of_memory" if code == "out_of_memory" else "model_failed"
    assert guest.loading_failure(error, "/models/a")[0] == loading


def pick(signature: Signature, names: tuple[str, ...], **found: Any) -> Any:
    outputs = {name: guest.to_array(name, value) for name, value in found.items()}
    return Outputs(signature).pick(outputs, names)


OPEN = Signature((), (), open_outputs=True)


def declared(datatype: Any) -> Signature:
    return Signature((), (TensorSpec("y", datatype, (None,), 0),))


def test_open_models_give_all_or_what_was_asked_for() -> None:
    everything = pick(OPEN, (), a=[1], b=[2])
    assert isinstance(everything, NamedArrays)
    assert everything.names == ("a", "b")
    assert pick(OPEN, ("b",), a=[1], b=[2]).names == ("b",)
    with pytest.raises(InvalidInput, match="unknown output 'c'; the model gave 'a', 'b'"):
        pick(OPEN, ("c",), a=[1], b=[2])


@pytest.mark.parametrize(
    ("datatype", "value"),
    [
        ("FP32", [1.5]),
        ("FP32", [1]),
        ("INT32", [1]),
        ("INT8", np.array([-5])),
        ("FP16", [1e6]),
        ("FP64", np.ones(1, np.float32)),
        ("BOOL", [True]),
        ("INT64", [True]),
        ("BYTES", ["a"]),
    ],
)
def test_declared_outputs_come_in_their_datatype(datatype: str, value: Any) -> None:
    (output,) = pick(declared(datatype), ("y",), y=value, other=[1])
    assert output.dtype == DTYPES[datatype]


@pytest.mark.parametrize(
    ("datatype", "value", "words"),
    [
        ("INT64", [1.0], "'y' is FP64, but declared as INT64"),
        ("BOOL", [1], "'y' is INT64, but declared as BOOL"),
        ("BYTES", [1], "'y' is INT64, but declared as BYTES"),
        ("FP32", ["a"], "'y' is BYTES, but declared as FP32"),
        ("INT8", [1000], "numbers beyond INT8"),
    ],
)
def test_declared_outputs_are_never_made_up(datatype: str, value: Any, words: str) -> None:
    with pytest.raises(InferenceFailed, match=words):
        pick(declared(datatype), ("y",), y=value)


@pytest.mark.parametrize("value", [[1.5], [[1.5]], [[[1.5, 2.5]]]])
def test_a_declared_output_has_the_declared_shape(value: Any) -> None:
    signature = Signature((), (TensorSpec("y", "FP32", (None, 2), 0),))
    pick(signature, ("y",), y=[[1.5, 2.5]])
    with pytest.raises(InferenceFailed, match=r"shape \[1.*\], but is declared as \[-1, 2\]"):
        pick(signature, ("y",), y=value)


def test_a_declared_output_may_not_be_missing() -> None:
    with pytest.raises(InferenceFailed, match="gave 'z', without the declared 'y'"):
        pick(declared("FP32"), ("y",), z=[1])


@pytest.mark.parametrize("returned", [lambda: None, lambda: [1], dict, lambda: {1: 2}])
def test_predict_must_return_outputs_by_name(returned: Callable[[], Any]) -> None:
    with pytest.raises(guest.BadOutput, match="predict"):
        guest.predict(SimpleNamespace(predict=lambda _: returned()), {})
