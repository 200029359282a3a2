"""`python -m snoozeml.worker`: a fresh worker, or a look at a Python model.

With `--fd N` it is a worker, where none can be forked from the spare. With `--check FOLDER` it
loads the Python model in a folder, runs it once, and prints what came out.
"""

import argparse
import os
import socket
import sys
from pathlib import Path


def main() -> None:
    arguments = _arguments()
    if arguments.check is not None:
        status = _check(arguments)
    else:
        from snoozeml.worker.main import serve

        serve(socket.socket(fileno=arguments.fd))
        status = 0
    sys.stdout.flush()
    sys.stderr.flush()
    # No interpreter shutdown: another thread may be inside the engine, whose destructors would run
    # beside it, or the model's code may have left one behind that never ends.
    os._exit(status)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m snoozeml.worker")
    either = parser.add_mutually_exclusive_group(required=True)
    either.add_argument("--fd", type=int, help="descriptor of the worker's socket")
    either.add_argument("--check", type=Path, metavar="FOLDER", help="try a Python model")
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME:SHAPE[:DATATYPE]",
        help="with --check, an input to make up, such as input:4x3 or ids:2x8:INT64; "
        "by default those that the manifest declares",
    )
    parser.add_argument("--device", default="auto", help="with --check, what load() is told")
    return parser.parse_args()


def _check(arguments: argparse.Namespace) -> int:
    try:
        from snoozeml.worker.check import Sample, check
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("snoozeml"):
            raise  # our own mistake, and no library's absence
        install = "pip install 'snoozeml[server]'"
        sys.stderr.write(
            f"--check needs the daemon's libraries: {install} ({error.name} is missing)\n"
        )
        return 1
    try:
        samples = [Sample.parse(text) for text in arguments.input]
    except ValueError as error:
        sys.stderr.write(f"--input {error}: must be like input:4x3 or ids:2x8:INT64\n")
        return 2
    return check(arguments.check, samples, arguments.device)


if __name__ == "__main__":
    main()
