"""Requests that differ in their values only share what is found out about one of them."""

from collections.abc import Sequence

import numpy as np
import pytest

from snoozeml.core.plan import Plan, WorkerFailure, WorkerSpec
from snoozeml.core.request import Codec
from snoozeml.core.tensors import Signature, TensorSpec
from snoozeml.wire.dialects import dialects
from snoozeml.wire.proto.snoozeml_pb2 import ModelInferRequest, ModelInferResponse
from snoozeml.wire.repeats import Repeated
from snoozeml.wire.tensors import Array, Tensors
from snoozeml.worker.answers import AnswerWriter
from snoozeml.worker.batcher import Pending
from snoozeml.worker.rows import RowLayout
from snoozeml.worker.runner import Runner

SIGNATURE = Signature(
    (TensorSpec("x", "FP32", (None, 2), 0), TensorSpec("n", "INT64", (None,), 0)),
    (TensorSpec("y", "FP32", (None, 2), 0), TensorSpec("sum", "INT64", (None,), 0)),
)
LAYOUT = RowLayout(SIGNATURE)


class Engine:
    device = "cpu"
    is_packable = False

    def infer(self, inputs: Tensors, outputs: Sequence[str]) -> Sequence[Array]:
        found = {"y": inputs["x"] * 2, "sum": inputs["n"] + 1}
        return [found[name] for name in outputs]

    def pack(self) -> None: ...


def runner(max_rows: int = 64) -> Runner:
    plan = Plan(
        format="onnx",
        graph="",
        prepared=True,
        signature=SIGNATURE,
        batching="merge",
        weights_bytes=0,
    )
    spec = WorkerSpec(
        model_id="m", plan=plan, device="cpu", max_batch_size=max_rows, max_batch_tokens=1 << 20,
        max_batch_delay_s=0, batching="adaptive", threads=1,
    )  # fmt: skip
    return Runner(spec, Engine(), LAYOUT, [])


def body(*values: float, datatypes: str = "") -> bytes:
    """A request of a row for each value, which is found in both of its inputs."""
    x, n = np.repeat(np.array(values, "<f4"), 2), np.array(values, "<i8")
    message = ModelInferRequest(model_id="m")
    if datatypes:
        message.parameters["datatypes"] = datatypes
    for name, kind, array, shape in (
        ("x", "FP32", x, [len(values), 2]), ("n", "INT64", n, [len(values)])
    ):  # fmt: skip
        message.inputs.add(
            name=name, shape=shape, data_type=f"DATA_TYPE_{kind}", raw_data=array.tobytes()
        )
    return bytes(message.SerializeToString())


BATCHES = {
    "all alike": [body(1), body(2), body(3)],
    "of several rows": [body(1, 2), body(3, 4)],
    "of two lengths": [body(1), body(2, 3), body(4)],
    "that want their answers in two ways": [
        body(1, datatypes="fp32"), body(2, datatypes="native"), body(3, datatypes="fp32")
    ],
}  # fmt: skip


@pytest.mark.parametrize("max_rows", [64, 2])
@pytest.mark.parametrize("bodies", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize("seen", [0, 2])
def test_everybody_gets_his_own(bodies: list[bytes], seen: int, max_rows: int) -> None:
    codecs = dialects("m", SIGNATURE)
    codec = codecs[Codec.GRPC_V1]
    for message in bodies * seen:
        codec.decode(message)
    inferences = [codec.decode(message) for message in bodies]
    assert all(isinstance(inference, Repeated) for inference in inferences) is (seen > 0)
    batch = [
        Pending(
            at, Codec.GRPC_V1, 0, 0, inference, *LAYOUT.measure(inference.inputs, inference.outputs)
        )
        for at, inference in enumerate(inferences)
    ]
    writer, subject = AnswerWriter(codecs), runner(max_rows)
    for _ in range(4):  # the first ones are run alone as well, and share nothing
        answers = subject.run(batch)
    for message, request, answer in zip(bodies, batch, answers, strict=True):
        alone = dialects("m", SIGNATURE)[Codec.GRPC_V1]
        inference = alone.decode(message)
        outputs = Engine().infer(inference.inputs, inference.outputs)
        wanted = alone.encode(inference.outputs, outputs, inference.reply_as, 0.5)
        assert not isinstance(answer.result, WorkerFailure)
        assert writer.write(request, answer.result, answer.rows, 0.5) == wanted
        assert ModelInferResponse.FromString(wanted).outputs[0].shape[0] == request.rows
