"""What runs a Python model's code; alone, too, in an interpreter that has nothing of ours.

It keeps to Python 3.8 and the standard library, and imports numpy only for models that work with
it. As a program it obeys a worker over the socket whose descriptor is its argument. A message is

    4 bytes     length of the header, little-endian
    header      JSON; its `tensors` are [name, datatype, shape, bytes] each
    payload     the tensors' values one after the other: little-endian, row-major; BYTES elements
                each after 4 bytes of their length
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import socket
import struct
import sys
import threading
import traceback
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # the rest is for type checkers; Python 3.8 could not even read it
    from collections.abc import Collection, Iterator, Sequence

    Tensor = tuple[str, Sequence[int], bytes | bytearray]  # datatype, shape, values
    Failure = tuple[str, str, str]  # code, message that a client may see, traceback for the log

_LENGTH = struct.Struct("<I")
_OLDEST = (3, 8)
_LONGEST_MESSAGE = 500  # characters of an exception's text that a client is shown
_ORPHAN_STATUS = 1
_HERE = Path(__file__).parent
_NONE: Mapping[str, Tensor] = {}

_DATATYPES = {
    "b1": "BOOL", "u1": "UINT8", "u2": "UINT16", "u4": "UINT32", "u8": "UINT64",
    "i1": "INT8", "i2": "INT16", "i4": "INT32", "i8": "INT64",
    "f2": "FP16", "f4": "FP32", "f8": "FP64",
}  # fmt: skip
"""Kind and size of numpy's types, and what they are called outside."""


class RawTensor(NamedTuple):
    """A tensor without numpy: `data` is an `array('f')` with the values in row-major order."""

    shape: tuple[int, ...]
    data: Any


class CannotLoad(Exception):
    """The model's file is not what it must be; says what would be right."""


class BadOutput(Exception):
    """`predict` returned something that cannot be answered with; says what."""


# Running the code


def load_model(folder: str, entrypoint: str, class_name: str, device: str) -> Any:
    """Import the file, make an object of the class, and let it load.

    Raises:
        CannotLoad: the file has no such class, or the class lacks a method.
        BaseException: whatever the code raises.
    """
    path = Path(folder, entrypoint)
    sys.path[:0] = [folder] if path.parent == Path(folder) else [folder, str(path.parent)]
    sys.dont_write_bytecode = True  # the folder holds the model, not what running it leaves behind
    module = _import(path)
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        raise CannotLoad(
            f"{entrypoint} has no class {class_name!r}; define it, "
            'or name another one as "class" in snooze_model.json'
        )
    for method, arguments in (("load", "model_dir, device"), ("predict", "inputs")):
        if not callable(getattr(found, method, None)):
            raise CannotLoad(
                f"class {class_name!r} in {entrypoint} has no method {method}(self, {arguments})"
            )
    model = found()
    model.load(folder, device)
    return model


def _import(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise CannotLoad(f"{path.name} is no Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # before it runs, as pickle and dataclasses expect
    spec.loader.exec_module(module)
    return module


def predict(model: Any, inputs: dict[str, Any]) -> Mapping[str, Any]:
    """Call the model.

    Raises:
        BadOutput: what it returned is no dict of outputs by name.
        BaseException: whatever the code raises.
    """
    outputs = model.predict(inputs)
    if not isinstance(outputs, Mapping):
        raise BadOutput(f"predict must return a dict of outputs by name, not {_a(outputs)}")
    if not outputs:
        raise BadOutput("predict returned no outputs")
    for name in outputs:
        if not isinstance(name, str) or not _is_unicode(name):
            raise BadOutput(f"predict must name outputs by text, not by {_a(name)}")
    return outputs


def loading_failure(error: BaseException, folder: str) -> Failure:
    """Words for an exception of `load_model`."""
    code, text, trace = running_failure(error, folder)
    if isinstance(error, CannotLoad):
        text = str(error)
    elif isinstance(error, ImportError):
        text += '; install it, or name an interpreter that has it as "python" in snooze_model.json'
    return ("out_of_memory" if code == "out_of_memory" else "model_failed"), text, trace


def running_failure(error: BaseException, folder: str, given: Collection[str] = ()) -> Failure:
    """Words for an exception of `predict`; this machine's folders are not among them."""
    trace = _trace(error)
    text = " ".join(_text_of(error).replace(folder + os.sep, "").split())[:_LONGEST_MESSAGE]
    message = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if isinstance(error, MemoryError) or "out of memory" in text.lower():
        return "out_of_memory", f"out of memory: {message}", trace
    if isinstance(error, SystemExit):
        return "inference_failed", f"the model's code called sys.exit({text})", trace
    if isinstance(error, BadOutput):
        return "inference_failed", text, trace
    if isinstance(error, KeyError) and given:  # inputs, one of which may be misspelt
        message += f" in predict, given {', '.join(map(repr, given)):.{_LONGEST_MESSAGE}}"
    is_clients = isinstance(error, (ValueError, KeyError))
    return ("invalid_input" if is_clients else "inference_failed"), message, trace


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # the model's own class, with a mistake of its own
        return ""


def _trace(error: BaseException) -> str:
    """The traceback from where the model's code begins; empty if it was not there at all."""
    place = error.__traceback__
    while place is not None and Path(place.tb_frame.f_code.co_filename).parent == _HERE:
        place = place.tb_next
    if place is None:
        return ""
    return "".join(traceback.format_exception(type(error), error, place))


def _is_unicode(text: str) -> bool:
    """False where there is half a surrogate pair, as in names of files that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _a(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


# What `predict` returns


def to_array(name: str, value: Any) -> Any:
    """A numpy array of a datatype that can be answered with, in memory of its own.

    The model may go on using what it returned. Numbers and lists become what numpy makes of them.

    Raises:
        BadOutput: it is no tensor, or of a type that none of our datatypes is.
    """
    import numpy as np

    try:
        found = np.array(value, order="C")
    except Exception as error:
        raise BadOutput(f"output {name!r} is no tensor: {error}") from error
    if found.dtype.kind in "OSUT":
        return _texts(name, found)
    if f"{found.dtype.kind}{found.dtype.itemsize}" not in _DATATYPES:
        raise BadOutput(f"output {name!r} has numpy's type {found.dtype}, which cannot be sent")
    return found.astype(found.dtype.newbyteorder("="), copy=False)


def _texts(name: str, found: Any) -> Any:
    import numpy as np

    texts = np.empty(found.shape, object)
    for index, text in enumerate(found.flat):
        if not isinstance(text, (str, bytes)):
            raise BadOutput(f"output {name!r} holds {_a(text)}, where numbers or text are wanted")
        if isinstance(text, str) and not _is_unicode(text):
            raise BadOutput(f"output {name!r} holds text with half a surrogate pair: {text!r:.80}")
        texts.flat[index] = text
    return texts


def to_raw(name: str, value: Any) -> RawTensor:
    """A raw tensor of what a model without numpy returned: one of its kind, an array, or lists.

    Raises:
        BadOutput: it is none of these, or the shape does not fit the values.
    """
    if isinstance(value, Mapping) and {"shape", "data"} <= set(value):
        shape, data = value["shape"], value["data"]
    elif hasattr(value, "shape") and hasattr(value, "data") and not hasattr(value, "tolist"):
        shape, data = value.shape, value.data
    else:
        lists = value.tolist() if hasattr(value, "tolist") else value  # numpy's arrays have it, too
        shape, data = _shape_of(lists), _flat(lists)
    try:
        raw = RawTensor(tuple(map(int, shape)), array("f", data))
    except (TypeError, ValueError, OverflowError) as error:
        raise BadOutput(f"output {name!r} is no tensor of numbers: {error}") from error
    size = 1
    for dim in raw.shape:
        size *= dim
    if size != len(raw.data):
        raise BadOutput(
            f"output {name!r}: the shape {list(raw.shape)} holds {size} values, "
            f"there are {len(raw.data)}"
        )
    return raw


def _shape_of(value: Any) -> list[int]:
    shape = []
    while isinstance(value, (list, tuple)):
        shape.append(len(value))
        value = value[0] if len(value) else None
    return shape


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _flat(item)
    else:
        yield value


# The wire


class Channel:
    """Sends and receives messages on a connected stream socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def send(self, header: dict[str, Any], tensors: Mapping[str, Tensor] = _NONE) -> None:
        """Send a header and tensors by name; raises OSError."""
        header["tensors"] = [
            [name, datatype, list(shape), len(values)]
            for name, (datatype, shape, values) in tensors.items()
        ]
        text = json.dumps(header).encode()
        self._sock.sendall(_LENGTH.pack(len(text)) + text)
        for _, _, values in tensors.values():
            self._sock.sendall(values)

    def receive(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Receive the next message; raises EOFError when the other side is gone, OSError."""
        header = json.loads(self._exactly(_LENGTH.unpack(self._exactly(_LENGTH.size))[0]))
        tensors: dict[str, Tensor] = {}
        for name, datatype, shape, length in header.pop("tensors"):
            tensors[name] = datatype, shape, self._exactly(length)
        return header, tensors

    def _exactly(self, length: int) -> bytearray:
        data = bytearray(length)
        view, got = memoryview(data), 0
        while got < length:
            received = self._sock.recv_into(view[got:])
            if not received:
                raise EOFError
            got += received
        return data


def pack_array(found: Any) -> Tensor:
    """A numpy array as it travels."""
    if found.dtype.kind == "O":
        texts = [text.encode() if isinstance(text, str) else bytes(text) for text in found.flat]
        return "BYTES", found.shape, b"".join(_LENGTH.pack(len(t)) + t for t in texts)
    datatype = _DATATYPES[f"{found.dtype.kind}{found.dtype.itemsize}"]
    return datatype, found.shape, found.tobytes()


def unpack_array(tensor: Tensor, as_bytes: bool = False) -> Any:
    """The numpy array that has travelled; unless `as_bytes`, what is UTF-8 becomes `str`."""
    import numpy as np

    datatype, shape, values = tensor
    if datatype != "BYTES":
        kind = next(kind for kind, name in _DATATYPES.items() if name == datatype)
        return np.ndarray(shape, kind, values)
    texts = np.empty(shape, object)
    at = 0
    for index in range(texts.size):
        start = at + _LENGTH.size
        at = start + _LENGTH.unpack_from(values, at)[0]
        element = bytes(values[start:at])
        texts.flat[index] = element if as_bytes else _text(element)
    return texts


def _text(raw: bytes) -> Any:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _unpack_raw(tensor: Tensor) -> RawTensor:
    _, shape, values = tensor
    data = array("f")
    data.frombytes(values)
    return RawTensor(tuple(shape), data)


# The program


def _serve(channel: Channel) -> None:
    order, _ = channel.receive()
    folder = order["folder"]
    try:
        model = load_model(folder, order["entrypoint"], order["class"], order["device"])
    except BaseException as error:
        channel.send({"failure": loading_failure(error, folder)})
        channel.receive()  # there will be no more: the worker leaves, and its end is ours
        return
    channel.send({})
    while True:
        _, tensors = channel.receive()
        try:
            answer = _answer(model, tensors, order["raw"], order["bytes"])
        except BaseException as error:
            channel.send({"failure": running_failure(error, folder, tensors)})
        else:
            channel.send({}, answer)


def _answer(
    model: Any, tensors: dict[str, Tensor], is_raw: bool, as_bytes: bool
) -> dict[str, Tensor]:
    if not is_raw:
        outputs = predict(model, {name: unpack_array(t, as_bytes) for name, t in tensors.items()})
        return {name: pack_array(to_array(name, value)) for name, value in outputs.items()}
    outputs = predict(model, {name: _unpack_raw(t) for name, t in tensors.items()})
    raws = {name: to_raw(name, value) for name, value in outputs.items()}
    return {name: ("FP32", raw.shape, raw.data.tobytes()) for name, raw in raws.items()}


def _leave_with_worker(sock: socket.socket) -> None:
    """End the process when the worker has gone, whatever the model is doing."""
    hang_up = select.poll()
    hang_up.register(sock, 0)  # a hang-up is reported without being asked for
    hang_up.poll()
    os._exit(_ORPHAN_STATUS)


def main() -> None:
    if sys.version_info < _OLDEST:
        sys.exit("a Python model needs Python 3.8 or newer, this is " + sys.version.split()[0])
    sock = socket.socket(fileno=int(sys.argv[1]))
    sock.set_inheritable(False)  # what the model starts must not hold the line to the worker
    threading.Thread(target=_leave_with_worker, args=(sock,), daemon=True).start()
    del sys.path[0]  # our own folder: its modules are not the model's
    del sys.argv[1:]
    channel = Channel(sock)
    with contextlib.suppress(EOFError, OSError):  # the worker has gone
        channel.send({"python": sys.version.split()[0]})
        _serve(channel)
    # No interpreter shutdown: it would wait for threads that the model has left behind.
    os._exit(0)


if __name__ == "__main__":
    main()
