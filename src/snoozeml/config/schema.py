"""Every setting: its type, its limits, its default, and what it means.

The annotations are the single source: checks, error messages and the reference in the
documentation are all derived from them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from snoozeml.config.auth_schema import AuthConfig
from snoozeml.core.plan import Format, Origin, Precision

# Upper limits turn a slip (a wrong unit, a digit too many, infinity) into a message.
_YEAR_S: Final = 365 * 24 * 3600
_MINUTE_MS: Final = 60_000
_MANY: Final = 1_000_000
_FRAME_ROWS: Final = 2**16 - 1  # a worker's answer counts the rows of its batch in 16 bits
_FRAME_BYTES: Final = 2**31 - 1  # a gRPC message counts its bytes in a signed 32-bit number
_PEBIBYTE: Final = 2**50

Seconds = Annotated[float, Meta(ge=0, le=_YEAR_S, extra={"unit": "s"})]
Timeout = Annotated[float, Meta(gt=0, le=_YEAR_S, extra={"unit": "s"})]
Milliseconds = Annotated[float, Meta(ge=0, le=_MINUTE_MS, extra={"unit": "ms"})]
Count = Annotated[int, Meta(ge=1, le=_MANY)]

_MEMORY: Final = Meta(
    pattern=r"^([0-9]+(\.[0-9]+)? ?([KMG]i?B|B)?|(100|[0-9]{1,2})(\.[0-9]+)? ?%)\Z"
)
_A_LIMIT: Final = {"expected": "a number of bytes, or text like '512MiB' or '80%'"}
_A_FILE: Final = {"expected": "a path", "default": "none"}
MemoryLimit = Annotated[int, Meta(ge=1, le=_PEBIBYTE)] | Annotated[str, _MEMORY]

_DEVICE: Final = Meta(
    pattern=r"^(auto|cpu|cuda(:[0-9]+)?|tensorrt|coreml)\Z",
    extra={"expected": "one of auto, coreml, cpu, cuda, cuda:N, tensorrt"},
)


class ModelConfig(Struct, frozen=True, kw_only=True):
    """One model with every setting resolved; `path` is absolute."""

    id: str
    path: Annotated[
        Path,
        Meta(
            description="The model's file or folder, relative to the folder of the configuration "
            "file. Without it, the model found under this id in the models folder is meant.",
            extra={"default": "the model found"},
        ),
    ]
    format: Format
    description: Annotated[str, Meta(description="Shown beside the model; for people.")] = ""
    labels: Annotated[
        tuple[str, ...],
        Meta(
            description="What the model's classes are called, in their order: for the "
            "`classification` of the Open Inference Protocol. In a file, relative to the folder of "
            "the configuration file, each stands on a line of its own.",
            extra={"expected": "a list of texts, or a path", "default": "the checkpoint's own"},
        ),
    ] = ()
    pinned: Annotated[bool, Meta(description="Load the model at start and never let it sleep.")] = (
        False
    )
    idle_timeout_secs: Annotated[
        Seconds, Meta(description="How long a model stays loaded after its last use. 0: for ever.")
    ] = 300.0
    max_batch_size: Annotated[
        int,
        Meta(
            ge=1,
            le=_FRAME_ROWS,
            extra={"unit": "rows"},
            description="The most rows that run at once, however many requests they came in.",
        ),
    ] = 16
    max_batch_tokens: Annotated[
        int,
        Meta(
            ge=1,
            le=2**31 - 1,
            extra={"unit": "tokens"},
            description="The most tokens that run at once, counting each row of a batch as long as "
            "its longest. For models whose requests may differ in length.",
        ),
    ] = 16384
    max_batch_delay_ms: Annotated[
        Milliseconds,
        Meta(description="The longest that a request may wait for company in its batch."),
    ] = 10.0
    batching: Annotated[
        Literal["adaptive", "fixed", "off"],
        Meta(
            description="`adaptive` waits only while more requests are on their way, `fixed` "
            "waits for a full batch or the whole delay, `off` runs each request alone."
        ),
    ] = "adaptive"
    precision: Annotated[
        Precision,
        Meta(
            description="What the linear layers of ONNX models and checkpoints compute in on the "
            "CPU. `int8` is about twice as fast and a little less accurate."
        ),
    ] = "fp32"
    device: Annotated[
        str,
        _DEVICE,
        Meta(
            description="Where the model runs. `auto` takes an accelerator if there is one and "
            "the CPU otherwise; any other device that cannot be had is an error."
        ),
    ] = "auto"
    min_residency_secs: Annotated[
        Seconds,
        Meta(description="How long a loaded model is safe from making room for another one."),
    ] = 10.0
    autoscale_queue_threshold: Annotated[
        Count,
        Meta(
            description="Requests waiting for a model above which another replica is started.",
            extra={"unit": "requests"},
        ),
    ] = 32
    max_replicas: Annotated[
        Count, Meta(description="The most workers that may serve one model at once.")
    ] = 4
    routing_strategy: Annotated[
        Literal["least_queue", "round_robin", "random"],
        Meta(description="How requests are spread over a model's replicas."),
    ] = "least_queue"
    max_queue: Annotated[
        Count,
        Meta(
            description="The most requests that may wait for a model; more are refused at once.",
            extra={"unit": "requests"},
        ),
    ] = 1024
    request_timeout_secs: Annotated[
        Timeout,
        Meta(description="When a request is given up, unless it names a timeout of its own."),
    ] = 30.0
    load_timeout_secs: Annotated[
        Timeout, Meta(description="When loading a model is given up as failed.")
    ] = 120.0
    exec_timeout_secs: Annotated[
        Timeout,
        Meta(
            description="When a worker that holds requests and gives no answer is taken to hang. "
            "It is ended, and what it held is tried once more."
        ),
    ] = 120.0
    threads: Annotated[
        int,
        Meta(
            ge=0,
            le=1024,
            description="Threads that one run of the model may use. 0: from the CPU quota.",
        ),
    ] = 0

    sandbox: Annotated[
        bool | Literal["best-effort"],
        Meta(
            description="Whether workers of Python models are confined: no network, no files but "
            "the model's own and the libraries, no other processes. `true` is an error where the "
            "system cannot do that; `best-effort` does what it can.",
            extra={"expected": "true, false or best-effort"},
        ),
    ] = False

    @property
    def origin(self) -> Origin:
        return Origin(self.path, self.format, self.precision)


class ServerConfig(Struct, frozen=True, kw_only=True):
    """What concerns the daemon as a whole; paths are absolute."""

    host: Annotated[
        str, Meta(min_length=1, description="The address to listen on. `0.0.0.0`: on all.")
    ] = "127.0.0.1"
    port: Annotated[
        int, Meta(ge=0, le=65535, description="The HTTP port. 0: a free one, told at start.")
    ] = 8080
    grpc: Annotated[bool, Meta(description="Whether gRPC is served at all.")] = True
    grpc_port: Annotated[
        int, Meta(ge=0, le=65535, description="The gRPC port. 0: a free one, told at start.")
    ] = 50051
    grpc_library: Annotated[
        Literal["auto", "native", "grpcio"],
        Meta(
            description="What serves gRPC. `native` is several times faster and smaller than "
            "`grpcio`, but reads messages of any size before they can be refused; so `auto` takes "
            "it only where `host` is this machine alone."
        ),
    ] = "auto"
    models_dir: Annotated[
        Path,
        Meta(
            description="The folder that models are found in. In a file, only where that file was "
            "named with `--config`, and relative to the file's folder.",
            extra={"default": "./models"},
        ),
    ]
    config_path: Annotated[
        Path | None,
        Meta(
            description="The configuration file, `.toml` or `.json`.",
            extra={"expected": "a path", "default": "the one in the models folder"},
        ),
    ] = None
    cache_dir: Annotated[
        Path,
        Meta(
            description="Where prepared models are kept.",
            extra={"default": "$XDG_CACHE_HOME/snoozeml or ~/.cache/snoozeml"},
        ),
    ]
    cache_limit_bytes: Annotated[
        int,
        Meta(
            ge=1,
            le=_PEBIBYTE,
            extra={"unit": "bytes"},
            description="The most that prepared models may take; those unused longest go first.",
        ),
    ] = 10 * 2**30
    max_request_bytes: Annotated[
        int,
        Meta(
            ge=1,
            le=_FRAME_BYTES,
            extra={"unit": "bytes"},
            description="The largest request body; a larger one is refused, whatever its road.",
        ),
    ] = 64 * 2**20
    max_upload_bytes: Annotated[
        int,
        Meta(
            ge=1,
            le=_PEBIBYTE,
            extra={"unit": "bytes"},
            description="The largest model that may be uploaded, as sent and as unpacked.",
        ),
    ] = 8 * 2**30
    allow_python_upload: Annotated[
        bool,
        Meta(
            description="Take Python models as uploads: whoever may upload may then run code here."
        ),
    ] = False
    max_inflight_bytes: Annotated[
        int,
        Meta(
            ge=1,
            le=_PEBIBYTE,
            extra={"unit": "bytes"},
            description="What the bodies of all HTTP requests that are not answered yet may take "
            "together, and what the messages of all gRPC calls may; one of `max_request_bytes` has "
            "room in any case. Beyond it, the body that has been on its way longest is given up, "
            "and a message refused.",
        ),
    ] = 256 * 2**20
    max_connections: Annotated[
        int,
        Meta(
            ge=1,
            le=_MANY,
            extra={"unit": "connections"},
            description="The most HTTP connections at once, and the most of gRPC. Beyond it, those "
            "of HTTP that are slow or idle make room for new ones; of gRPC, new ones are closed.",
        ),
    ] = 4096
    keep_alive_secs: Annotated[
        Timeout, Meta(description="When a connection that asks nothing is closed.")
    ] = 60.0
    header_timeout_secs: Annotated[
        Timeout,
        Meta(
            description="How long a client may take to send a request line and its headers, or to "
            "open a gRPC connection."
        ),
    ] = 10.0
    transfer_timeout_secs: Annotated[
        Timeout,
        Meta(
            description="How long a client may take to send a body or to read an answer, beside "
            "what its size takes at `min_transfer_rate`."
        ),
    ] = 30.0
    min_transfer_rate: Annotated[
        int,
        Meta(
            ge=1,
            le=_PEBIBYTE,
            extra={"unit": "bytes/s"},
            description="How fast large bodies and answers must move.",
        ),
    ] = 16 * 2**10
    spare_linger_secs: Annotated[
        Seconds,
        Meta(
            description="How long the process that makes cold starts fast stays when no model is "
            "loaded. 0: never keep one."
        ),
    ] = 600.0
    drain_timeout_secs: Annotated[
        Seconds, Meta(description="How long work in flight may take to finish at shutdown.")
    ] = 30.0
    max_loaded_models: Annotated[
        Count, Meta(description="The most models loaded at once.", extra={"unit": "models"})
    ] = 8
    max_memory: Annotated[
        MemoryLimit,
        Meta(
            description="What all loaded models together may take: bytes, a number with a unit "
            "(`KiB`, `MiB`, `GiB`, `KB`, `MB`, `GB`), or a share of what the machine or its cgroup "
            "has.",
            extra=_A_LIMIT,
        ),
    ] = "80%"
    max_vram: Annotated[
        MemoryLimit,
        Meta(
            description="What all loaded models together may take of each GPU's own memory: as "
            "`max_memory`, or a share of what that GPU has.",
            extra=_A_LIMIT,
        ),
    ] = "80%"
    max_concurrent_loads: Annotated[
        int,
        Meta(
            ge=0,
            le=1024,
            extra={"unit": "models"},
            description="The most models loading at the same time, of those that have not been at "
            "it for 5 s. 0: one for every two cores.",
        ),
    ] = 0
    tls_cert: Annotated[
        Path | None,
        Meta(
            description="The certificate to serve with, as PEM: the server's own, then those that "
            "lead to its root. With it and `tls_key`, TLS 1.2 or later is all that is spoken.",
            extra=_A_FILE,
        ),
    ] = None
    tls_key: Annotated[
        Path | None,
        Meta(description="The private key of `tls_cert`, as PEM, not encrypted.", extra=_A_FILE),
    ] = None
    tls_client_ca: Annotated[
        Path | None,
        Meta(
            description="The roots, as PEM, that clients' certificates must lead to. With it, "
            "clients without one are turned away.",
            extra=_A_FILE,
        ),
    ] = None
    log_format: Annotated[
        Literal["auto", "human", "json"],
        Meta(description="`auto` writes for people on a terminal and JSON otherwise."),
    ] = "auto"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="The least important messages that are logged."),
    ] = "info"


Written = tuple[str, Mapping[str, Any]]
"""A model's id, and the settings in its entry."""


class Configuration(Struct, frozen=True, kw_only=True):
    """All that was asked for: the daemon's settings, every model by id, and who may do what.

    Attributes:
        overlooked: sentences on what looks like a model in the models folder and is none.
        orphans: entries that uploads alone have written, whose models are gone; they do not count.
    """

    server: ServerConfig
    models: tuple[ModelConfig, ...]
    auth: AuthConfig = AuthConfig()
    overlooked: tuple[str, ...] = ()
    orphans: tuple[Written, ...] = ()


_HEEDED_AT_ONCE: Final = frozenset({"models_dir", "config_path"})


def waits_for_restart(started_with: ServerConfig, now: ServerConfig) -> list[str]:
    """The settings that have changed, of those that a daemon heeds only when it starts."""
    names = set(ServerConfig.__struct_fields__) - _HEEDED_AT_ONCE
    return sorted(name for name in names if getattr(started_with, name) != getattr(now, name))
