"""Load over HTTP/2 from h2load, a client in C."""

import os
import re
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from benchmarks.wrk import Load

INFER: Final = "/snoozeml.v1.InferenceService/Infer"

_UNITS_US: Final = {"us": 1.0, "ms": 1e3, "s": 1e6}


class H2loadMissing(Exception):
    """h2load is not installed, and cannot be."""


def ensure_h2load() -> None:
    """Install h2load where that is possible.

    Raises:
        H2loadMissing: with what to do about it.
    """
    if shutil.which("h2load"):
        return
    if os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "update", "-q"], check=True, stdout=2)
        subprocess.run(["apt-get", "install", "-yq", "nghttp2-client"], check=True, stdout=2)
    else:
        raise H2loadMissing("this benchmark needs h2load: apt-get install nghttp2-client, as root")


def call(address: str, message: bytes, connections: int, streams: int, seconds: int) -> Load:
    """Send one message again and again to Infer, on so many connections with so many calls at once.

    The latency is the mean; h2load knows no median.

    Raises:
        RuntimeError: some call failed; such a measurement means nothing.
    """
    with tempfile.NamedTemporaryFile() as body:
        Path(body.name).write_bytes(struct.pack(">BI", 0, len(message)) + message)
        command = ["h2load", f"-c{connections}", f"-m{streams}", f"-D{seconds}", "-d", body.name]
        headers = ["-H", "content-type: application/grpc", "-H", "te: trailers"]
        url = f"http://{address}{INFER}"
        run = subprocess.run([*command, *headers, url], check=True, capture_output=True, text=True)
    rate = re.search(r"finished in .*?, ([\d.]+) req/s", run.stdout)
    counts = re.search(r"(\d+) succeeded, (\d+) failed, (\d+) errored", run.stdout)
    times = re.search(r"time for request:\s+\S+\s+\S+\s+([\d.]+)(us|ms|s)\s", run.stdout)
    if not rate or not counts or not times or counts[2] != "0" or counts[3] != "0":
        raise RuntimeError(f"calls to {address} failed:\n{run.stdout}")
    return Load(float(rate[1]), float(times[1]) * _UNITS_US[times[2]])
