"""What linear layers are given when their model runs."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
from onnx import ModelProto, helper

from snoozeml.prepare.session import open_model
from snoozeml.wire.tensors import Array, Tensors

_SAMPLED_ROWS: Final = 64  # of each request


class Seen(NamedTuple):
    """What a layer was given over all requests.

    Shapes:
        lowest, highest: (columns,), over all rows
        sample: (rows, columns), some of them
    """

    lowest: Array
    highest: Array
    sample: Array


def watch(model: ModelProto, values: Iterable[str], requests: Sequence[Tensors]) -> dict[str, Seen]:
    """Run a model, and look at some values inside it.

    Args:
        values: names of tensors of shape (…, columns).
    """
    names = list(dict.fromkeys(values))
    watched = ModelProto()
    watched.CopyFrom(model)
    known = {output.name for output in model.graph.output}
    watched.graph.output.extend(
        helper.make_empty_tensor_value_info(name) for name in names if name not in known
    )
    session = open_model(watched)
    seen: dict[str, Seen] = {}
    for request in requests:
        for name, found in zip(names, session.run(names, request), strict=True):
            now = _seen(found.reshape(-1, found.shape[-1]))
            seen[name] = _joined(seen[name], now) if name in seen else now
    return seen


def _seen(rows: Array) -> Seen:
    every = max(1, len(rows) // _SAMPLED_ROWS)
    return Seen(rows.min(0), rows.max(0), rows[::every].copy())


def _joined(one: Seen, other: Seen) -> Seen:
    return Seen(
        np.minimum(one.lowest, other.lowest),
        np.maximum(one.highest, other.highest),
        np.concatenate([one.sample, other.sample]),
    )
