"""A forest and its link function as a whole ONNX graph."""

from collections.abc import Sequence
from typing import Final

from onnx import ModelProto, TensorProto, helper

from snoozeml.prepare.trees.columns import Columns
from snoozeml.prepare.trees.ensemble import DOMAIN, ensemble_attributes
from snoozeml.prepare.trees.forest import Forest
from snoozeml.prepare.trees.links import Link, Readings, add_link
from snoozeml.prepare.trees.nodes import Arithmetic

_FEATURES: Final = "features"
_PREDICTIONS: Final = "predictions"
_LABEL: Final = "label"
_PROBABILITIES: Final = "probabilities"

_ROWS: Final = "rows"
_IR_VERSION: Final = 10
_OPSETS: Final = {"": 20, DOMAIN: 5}


def tree_graph(forest: Forest, link: Link) -> ModelProto:
    """The graph: `features` in; `predictions`, and of classifiers `label` and `probabilities`, out.

    Shapes:
        features: (rows, features), FP32; NaN is missing
        predictions: (rows,) where there is one target or a class, else (rows, targets)
        label: (rows,), or (rows, targets) where there are several yes-no questions
        probabilities: (rows, classes); of yes, (rows, targets), where there are several questions
    """
    graph = _Graph(forest)
    readings = add_link(graph.maths, graph.sums(), link)
    graph.predict(readings, is_class=link.name == "softmax_label")
    if link.task == "binary":
        graph.answer_yes_or_no(readings)
    elif link.task == "multiclass":
        graph.choose_a_class(readings)
    return graph.model()


class _Graph:
    def __init__(self, forest: Forest) -> None:
        self.maths: Final = Arithmetic(forest.dtype)
        self._forest: Final = forest
        self._outputs: Final[list[tuple[str, int, Sequence[str | int]]]] = []

    def sums(self) -> str:
        """The sums of leaves, [rows, targets]."""
        maths, columns = self.maths, Columns(self._forest)
        tested = columns.add_to(maths, maths.of_own_type(_FEATURES))
        attributes = ensemble_attributes(self._forest, columns)
        sums = maths.add("TreeEnsemble", tested, domain=DOMAIN, **attributes)
        divisor = self._forest.divisor
        return sums if divisor == 1 else maths.add("Div", sums, maths.number(divisor))

    def predict(self, readings: Readings, *, is_class: bool) -> None:
        width = 1 if is_class else self._forest.targets
        self._give(_PREDICTIONS, self.maths.datatype, readings.predictions, width)

    def choose_a_class(self, readings: Readings) -> None:
        found = readings.probabilities
        label = self.maths.add("ArgMax", found, axis=1, keepdims=1)
        self._give(_LABEL, TensorProto.INT64, label, 1)
        self._give(_PROBABILITIES, self.maths.datatype, found, self._forest.targets)

    def answer_yes_or_no(self, readings: Readings) -> None:
        maths, questions, found = self.maths, self._forest.targets, readings.probabilities
        label = maths.cast(maths.add("Greater", found, maths.number(0.5)), TensorProto.INT64)
        self._give(_LABEL, TensorProto.INT64, label, questions)
        if questions == 1:
            no = maths.add("Sub", maths.number(1), found)
            found = maths.add("Concat", no, found, axis=1)
        self._give(_PROBABILITIES, maths.datatype, found, max(questions, 2))

    def model(self) -> ModelProto:
        shape: list[str | int] = [_ROWS, self._forest.features]
        graph = helper.make_graph(
            self.maths.nodes,
            "trees",
            [helper.make_tensor_value_info(_FEATURES, TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(*output) for output in self._outputs],
            self.maths.constants,
        )
        opsets = [helper.make_opsetid(*opset) for opset in _OPSETS.items()]
        return helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)

    def _give(self, name: str, datatype: int, values: str, width: int) -> None:
        """Make [rows, width] an output; of a single column, its rows."""
        if width == 1:
            self.maths.add("Squeeze", values, self.maths.axis(1), output=name)
        else:
            self.maths.add("Identity", values, output=name)
        self._outputs.append((name, datatype, [_ROWS] if width == 1 else [_ROWS, width]))
