"""One inference on its way from a front to a worker and back."""

from collections.abc import Sequence
from enum import IntEnum

import msgspec


class Codec(IntEnum):
    """The dialect that a body is written in; the worker picks decoder and encoder by it."""

    JSON_V1 = 1
    GRPC_V1 = 2
    OIP_GRPC = 3
    OIP_REST = 4


class InferenceRequest(msgspec.Struct, frozen=True, gc=False):
    """A request as the daemon sees it: bytes, and what routing needs.

    Attributes:
        body: the undecoded body, in the pieces it arrived in.
        arrived_at: monotonic seconds at which the front had the whole request.
        deadline: monotonic seconds after which nobody wants the answer.
        priority: 1 is served first, then 2, and so on; 0: this request asks for nothing special.
        fail_fast: the answer is not worth waiting for a load; the load is started all the same.
    """

    model_id: str
    codec: Codec
    body: Sequence[bytes]
    arrived_at: float
    deadline: float
    priority: int = 0
    fail_fast: bool = False


class InferenceResult(msgspec.Struct, gc=False):
    """An answer, encoded by the worker in the request's own dialect.

    Attributes:
        queue_s: from arrival in the daemon to the start of the run that served it.
        batch_size: rows in that run.
        run_s: what that run took.
        cold_start_s: how long this request waited for the model to load; None when it was warm.
    """

    body: bytes
    batch_size: int
    queue_s: float
    run_s: float
    cold_start_s: float | None = None
