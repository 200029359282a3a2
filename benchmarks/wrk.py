"""Load from wrk, a client in C that costs little beside what it measures."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

_SCRIPT: Final = """
wrk.method = "POST"
%s
local bodies = {%s}
local sent, requests = 0, {}

request = function()
  sent = sent %% #bodies + 1
  requests[sent] = requests[sent] or wrk.format(nil, nil, nil, bodies[sent])
  return requests[sent]
end

done = function(summary, latency, requests)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  local form = '\\n{"requests": %%d, "duration_us": %%d, "p50_us": %%d, "failed": %%d}\\n'
  local median = latency:percentile(50)
  io.write(string.format(form, summary.requests, summary.duration, median, failed))
end
"""


JSON: Final = {"Content-Type": "application/json"}


class WrkMissing(Exception):
    """wrk is not installed, and cannot be."""


class Load(NamedTuple):
    requests_per_s: float
    median_us: float


def ensure_wrk() -> None:
    """Install wrk where that is possible.

    Raises:
        WrkMissing: with what to do about it.
    """
    if shutil.which("wrk"):
        return
    if os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "update", "-q"], check=True, stdout=2)
        subprocess.run(["apt-get", "install", "-yq", "wrk"], check=True, stdout=2)
    else:
        raise WrkMissing("the benchmarks need wrk: apt-get install wrk, as root")


def post(
    url: str,
    body: bytes | Sequence[bytes],
    connections: int,
    seconds: int,
    headers: Mapping[str, str] = JSON,
) -> Load:
    """Send one body, or several in turn, again and again on keep-alive connections of one thread.

    Raises:
        RuntimeError: some request failed; such a measurement means nothing.
    """
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "post.lua")
        bodies = [body] if isinstance(body, bytes) else body
        lines = [f'wrk.headers["{name}"] = "{text}"' for name, text in headers.items()]
        script.write_text(_SCRIPT % ("\n".join(lines), ", ".join(map(_lua_string, bodies))))
        options = [f"-c{connections}", f"-d{seconds}s", "-t1", "--timeout=30s", "-s", str(script)]
        command = ["wrk", *options, url]
        run = subprocess.run(command, check=True, capture_output=True, text=True)
    result = json.loads(run.stdout.strip().splitlines()[-1])
    if result["failed"] or not result["requests"]:
        raise RuntimeError(f"requests to {url} failed:\n{run.stdout}")
    return Load(result["requests"] / result["duration_us"] * 1e6, result["p50_us"])


def _lua_string(data: bytes) -> str:
    return '"' + "".join(f"\\{byte:03d}" for byte in data) + '"'
