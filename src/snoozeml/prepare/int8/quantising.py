"""Which layers of a model are put into integers: all but those that hurt too much."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from onnx import ModelProto

from snoozeml.errors import ModelFailed
from snoozeml.prepare.int8.linears import find_linears, matrices_of
from snoozeml.prepare.int8.rewriting import Rewriter
from snoozeml.prepare.int8.steps import harm, plan_step
from snoozeml.prepare.int8.watching import watch
from snoozeml.prepare.session import open_model
from snoozeml.wire.tensors import Array, Tensors

LEAST_COSINE: Final = 0.9965
"""Between each row's answer in integers and in float32, on made-up requests.

Real ones can be less kind: of 50 texts through all-MiniLM-L6-v2, the worst then has 0.991.
"""

_SHARE_PER_ROUND: Final = 0.1  # of the layers, that stay in float32 after one more round


class Quantised(NamedTuple):
    """A model in integers.

    Attributes:
        cosine: the lowest found.
        kept: matrices that stay in float32.
    """

    model: ModelProto
    cosine: float
    kept: list[str]


def quantise(model: ModelProto, requests: Sequence[Tensors]) -> Quantised:
    """Put a model's linear layers into integers.

    Args:
        model: with all its tensors inside; has linear layers.
        requests: what to measure accuracy with.

    Raises:
        ModelFailed: the model loses too much.
    """
    linears = find_linears(model)
    matrices = matrices_of(model, linears)
    seen = watch(model, (linear.x for linear in linears), requests)
    steps = {
        x: plan_step(found, [matrices[linear.weight] for linear in linears if linear.x == x])
        for x, found in seen.items()
    }
    harms = {
        linear.weight: harm(seen[linear.x].sample, matrices[linear.weight], steps[linear.x])
        for linear in linears
    }
    by_harm = sorted(linears, key=lambda linear: harms[linear.weight])
    wanted = _answers(model, requests)
    count = len(by_harm)
    while count:
        chosen = by_harm[:count]
        rewritten = Rewriter(model, steps, matrices).rewrite(chosen)
        cosine = _lowest_cosine(wanted, _answers(rewritten, requests))
        if cosine >= LEAST_COSINE:
            return Quantised(rewritten, cosine, [linear.weight for linear in by_harm[count:]])
        count -= max(1, round(_SHARE_PER_ROUND * len(linears)))
    raise ModelFailed("precision 'int8' loses too much of this model's accuracy; use 'fp32'")


def _answers(model: ModelProto, requests: Sequence[Tensors]) -> list[Array]:
    session = open_model(model)
    return [answer for request in requests for answer in session.run(None, request)]


def _lowest_cosine(wanted: list[Array], got: list[Array]) -> float:
    """Over the rows of all answers; a row is what lies along the last axis."""
    return min(map(_cosine, wanted, got), default=1.0)


def _cosine(wanted: Array, got: Array) -> float:
    if wanted.dtype.kind != "f" or not wanted.size:
        return 1.0
    one, other = (np.atleast_2d(a.reshape(-1, a.shape[-1])) for a in (wanted, got))
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return float(np.min((one * other).sum(1)[lengths > 0] / lengths[lengths > 0], initial=1.0))
