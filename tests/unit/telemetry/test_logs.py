"""What is left out of the log."""

import json
import logging
import subprocess
import sys
from typing import Final

import pytest

from snoozeml.telemetry.logs import Seldom


def test_what_a_library_says_again_and_again_is_written_once_a_second() -> None:
    seldom = Seldom()
    said = [("accept failed", n / 200) for n in range(401)]
    said[150:150] = [("another thing", 0.75), ("another thing", 0.75)]
    records = [
        logging.makeLogRecord({"msg": "gRPC %s", "args": (what,), "created": at})
        for what, at in said
    ]
    written = [(r.getMessage(), r.created) for r in records if seldom.filter(r)]
    assert written == [
        ("gRPC accept failed", 0.0),
        ("gRPC another thing", 0.75),
        ("gRPC accept failed", 0.75),
        ("gRPC accept failed", 1.75),
    ]


_TALK: Final = """
import logging, sys
from snoozeml.telemetry import logs

finish = logs.configure("json", "info")
for n in range(int(sys.argv[1])):
    logging.getLogger("talker").info("%d %s", n, "x" * int(sys.argv[2]))
print(max(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("VmHWM")))
sys.stdout.flush()
sys.stdin.read()
finish()
"""


@pytest.mark.parametrize(("count", "size"), [(3000, 100_000), (200, 5_000_000), (60_000, 10)])
def test_what_nobody_reads_is_dropped_and_counted(count: int, size: int) -> None:
    command = [sys.executable, "-c", _TALK, str(count), str(size)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as talker:
        assert talker.stdout is not None
        assert talker.stderr is not None
        most_kib = int(talker.stdout.readline())
        said = dropped = 0
        for line in map(json.loads, talker.stderr):
            if line["logger"] == "talker":
                said += 1
            else:
                assert "dropped" in line["event"]
                dropped += line["count"]
            if said + dropped == count:  # else it would wait for us to let it go
                break
        talker.communicate()
    assert most_kib < 100 * 1024
    assert said
    assert dropped
