"""What is left out of the log."""

import logging

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
