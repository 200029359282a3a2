"""What makes predictions of the sums of leaves: link functions, as ONNX operators."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from snoozeml.prepare.trees.nodes import Arithmetic

LinkName = Literal[
    "identity", "exp", "sigmoid", "raw_logit", "hinge", "softmax", "softmax_label", "square",
    "log1p_exp",
]  # fmt: skip

Task = Literal["regression", "binary", "multiclass"]

_LARGEST_POWER: Final = 88.7
"""XGBoost's sigmoid goes no further, so that its e^x stays finite in single precision."""


@dataclass(frozen=True)
class Link:
    """How an objective's sums are read.

    Attributes:
        task: whether there are labels and probabilities, and of what kind.
        scale: of the argument of sigmoid.
    """

    name: LinkName = "identity"
    task: Task = "regression"
    scale: float = 1.0


@dataclass(frozen=True)
class Readings:
    """Names of tensors.

    Attributes:
        predictions: [rows, targets], or [rows, 1] where a class is predicted.
        probabilities: of classifiers: of each class, [rows, classes], or where the question is yes
            or no, of yes, [rows, targets].
    """

    predictions: str
    probabilities: str


def add_link(maths: Arithmetic, sums: str, link: Link) -> Readings:
    """Add a link function to a graph.

    Args:
        sums: [rows, targets].
    """
    return _LINKS[link.name](maths, sums, link)


def _identity(maths: Arithmetic, sums: str, link: Link) -> Readings:
    return Readings(sums, sums)


def _exp(maths: Arithmetic, sums: str, link: Link) -> Readings:
    found = maths.exp(sums)
    return Readings(found, found)


def _sigmoid(maths: Arithmetic, sums: str, link: Link) -> Readings:
    found = _logistic(maths, sums, link)
    return Readings(found, found)


def _raw_logit(maths: Arithmetic, sums: str, link: Link) -> Readings:
    return Readings(sums, _logistic(maths, sums, link))


def _hinge(maths: Arithmetic, sums: str, link: Link) -> Readings:
    found = maths.of_own_type(maths.add("Greater", sums, maths.number(0)))
    return Readings(found, found)


def _softmax(maths: Arithmetic, sums: str, link: Link) -> Readings:
    found = _shares(maths, sums)
    return Readings(found, found)


def _softmax_label(maths: Arithmetic, sums: str, link: Link) -> Readings:
    label = maths.add("ArgMax", sums, axis=1, keepdims=1)
    return Readings(maths.of_own_type(label), _shares(maths, sums))


def _square(maths: Arithmetic, sums: str, link: Link) -> Readings:
    found = maths.add("Mul", sums, maths.add("Abs", sums))
    return Readings(found, found)


def _log1p_exp(maths: Arithmetic, sums: str, link: Link) -> Readings:
    """log(1 + e^x), as max(x, 0) + log(1 + y) with y = e^-|x|, which cannot overflow.

    The logarithm is y * log(u) / (u - 1) with u = 1 + y rounded, which is exact for small y as well
    (Kahan; Goldberg 1991, theorem 4).
    """
    y = maths.exp(maths.add("Neg", maths.add("Abs", sums)))
    u = maths.add("Add", y, maths.number(1))
    above = maths.add("Sub", u, maths.number(1))
    is_lost = maths.add("Equal", above, maths.number(0))
    divisor = maths.add("Where", is_lost, maths.number(1), above)
    exact = maths.add("Div", maths.add("Mul", y, maths.add("Log", u)), divisor)
    found = maths.add("Add", maths.add("Relu", sums), maths.add("Where", is_lost, y, exact))
    return Readings(found, found)


def _logistic(maths: Arithmetic, sums: str, link: Link) -> str:
    power = maths.add("Mul", sums, maths.number(-link.scale))
    if maths.dtype == np.float32:
        power = maths.add("Min", power, maths.number(_LARGEST_POWER))
    return maths.add("Div", maths.number(1), maths.add("Add", maths.exp(power), maths.number(1)))


def _shares(maths: Arithmetic, sums: str) -> str:
    """Softmax with the differences to the largest in the library's own precision, as there."""
    shifted = maths.add("Sub", sums, maths.add("ReduceMax", sums, maths.axis(1)))
    powers = maths.add("Exp", maths.wide(shifted))
    return maths.narrow(maths.add("Div", powers, maths.add("ReduceSum", powers, maths.axis(1))))


_LINKS: Final[dict[LinkName, Callable[[Arithmetic, str, Link], Readings]]] = {
    "identity": _identity,
    "exp": _exp,
    "sigmoid": _sigmoid,
    "raw_logit": _raw_logit,
    "hinge": _hinge,
    "softmax": _softmax,
    "softmax_label": _softmax_label,
    "square": _square,
    "log1p_exp": _log1p_exp,
}
