"""`python -m snoozeml.worker --fd N`: a fresh worker, where none can be forked from the spare."""

import argparse
import os
import socket

from snoozeml.worker.main import serve


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m snoozeml.worker")
    parser.add_argument("--fd", type=int, required=True, help="descriptor of the worker's socket")
    serve(socket.socket(fileno=parser.parse_args().fd))
    # No interpreter shutdown: another thread may be inside the engine, whose destructors would run
    # beside it.
    os._exit(0)


if __name__ == "__main__":
    main()
