"""Generates the Python code of the `.proto` files: `python scripts/proto.py FOLDER`."""

import sys
from pathlib import Path

from grpc_tools import protoc

_SOURCE = Path(__file__).parent.parent / "src/snoozeml/wire/proto"
_THEIR_POOL = "from google.protobuf import descriptor_pool as _descriptor_pool\n"
_OUR_POOL = "from snoozeml.wire.proto import pool as _descriptor_pool\n"


def generate(folder: Path) -> list[Path]:
    """Write the modules into a folder; see `snoozeml.wire.proto.pool` for what is changed."""
    written = []
    for source in sorted(_SOURCE.glob("*.proto")):
        options = [f"-I{_SOURCE}", f"--python_out={folder}", f"--pyi_out={folder}"]
        if protoc.main(["protoc", *options, str(source)]):
            raise SystemExit(f"protoc failed on {source}")
        module, stub = (folder / f"{source.stem}_pb2{suffix}" for suffix in (".py", ".pyi"))
        code = module.read_text()
        assert code.count(_THEIR_POOL) == 1, "protoc writes this line differently now"
        module.write_text(code.replace(_THEIR_POOL, _OUR_POOL))
        written += [module, stub]
    return written


if __name__ == "__main__":
    generate(Path(sys.argv[1]))
