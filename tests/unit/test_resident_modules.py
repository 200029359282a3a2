"""What the daemon may never load: whatever it imports stays in memory while all models sleep."""

import subprocess
import sys

ENGINES = {"numpy", "onnx", "onnxruntime", "orjson", "simdjson", "torch"}
HEAVY = {"rich", "pydantic", "h11", "email.mime", "jwt", "cryptography", "grpc", "google.protobuf"}


def test_daemon_imports_no_engine_and_nothing_heavy() -> None:
    listing = subprocess.run(
        [sys.executable, "-c", "import snoozeml.daemon, sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(listing.stdout.split())
    assert not loaded & (ENGINES | HEAVY)
    assert not any(name.startswith(("snoozeml.worker", "snoozeml.prepare")) for name in loaded)
