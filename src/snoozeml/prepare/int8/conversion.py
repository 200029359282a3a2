"""Models on disk, written anew with integers."""

import logging
from pathlib import Path
from typing import Final

import onnx
from onnx.external_data_helper import load_external_data_for_model

from snoozeml.core.tensors import Signature
from snoozeml.errors import ModelFailed
from snoozeml.prepare.int8.linears import find_linears
from snoozeml.prepare.int8.quantising import Quantised, quantise
from snoozeml.prepare.int8.requests import made_up_requests
from snoozeml.prepare.session import SMALLEST_OUTSIDE_BYTES, WEIGHTS_FILE

_log = logging.getLogger(__name__)

_LARGEST_BYTES: Final = 2**31 - 1
"""Of a model with all its tensors inside, which is how it is put into integers."""


def convert(graph: Path, weights_folder: Path, signature: Signature, folder: Path) -> Path | None:
    """Write a model's integer version, with its weights beside it.

    Args:
        graph: an ONNX file.
        weights_folder: what its external weights are relative to.
        folder: where to; made.

    Returns: the graph that was written; None: the model has no linear layers, so that nothing was.

    Raises:
        ModelFailed: the model is too large, or loses too much accuracy.
    """
    model = onnx.load(graph, load_external_data=False)
    if not find_linears(model):
        _log.warning("int8: this model has no linear layers, and is served in fp32")
        return None
    load_external_data_for_model(model, str(weights_folder))
    if model.ByteSize() > _LARGEST_BYTES:
        raise ModelFailed("precision 'int8' is for models below 2 GB; use 'fp32'")
    quantised = quantise(model, made_up_requests(signature))
    _tell(quantised)
    folder.mkdir()
    onnx.save_model(
        quantised.model,
        folder / graph.name,
        save_as_external_data=True,
        location=WEIGHTS_FILE,
        size_threshold=SMALLEST_OUTSIDE_BYTES,
    )
    return folder / graph.name


def _tell(quantised: Quantised) -> None:
    kept = f"; in float32 stay {', '.join(quantised.kept)}" if quantised.kept else ""
    _log.warning("int8: cosine %.4f at the least on made-up requests%s", quantised.cosine, kept)
