"""`python -m benchmarks.bare_loop GRAPH WEIGHTS_FOLDER < texts`: a plan without a server.

Reads lists of token ids as JSON, and prints how many texts per second the plan embeds in full
batches: computing real tokens only, and computing the padding as well.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime as ort

from snoozeml.wire.tensors import Array, Tensors

_BATCH: Final = 16


def main() -> None:
    graph, weights_folder = sys.argv[1:]
    session = _open(Path(graph), weights_folder)
    texts = json.load(sys.stdin)
    batches = [texts[start : start + _BATCH] for start in range(0, len(texts), _BATCH)]
    rates = {}
    for name, is_padded in (("free", False), ("padded", True)):
        feeds = [_feed(batch, is_padded=is_padded) for batch in batches]
        _run(session, feeds[:2])  # the first run pays for what is made on first use
        rates[name] = len(texts) / _run(session, feeds)
    print(json.dumps(rates))


def _open(graph: Path, weights_folder: str) -> Any:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL  # it is a plan
    options.intra_op_num_threads = len(os.sched_getaffinity(0))
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path", weights_folder
    )
    return ort.InferenceSession(graph.read_bytes(), options, providers=["CPUExecutionProvider"])


def _feed(texts: list[list[int]], *, is_padded: bool) -> Tensors:
    """A batch; if the padding is to be computed, it counts as real."""
    shape = (len(texts), max(map(len, texts)))
    ids: Array = np.zeros(shape, np.int64)
    mask: Array = np.full(shape, int(is_padded), np.int64)
    for row, text in enumerate(texts):
        ids[row, : len(text)], mask[row, : len(text)] = text, 1
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}


def _run(session: Any, feeds: list[Tensors]) -> float:
    """Seconds that all batches take."""
    started = time.perf_counter()
    for feed in feeds:
        session.run(["sentence_embedding"], feed)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
