"""Makes the golden files: small random models, and what the reference library answers for them.

    python tests/golden/safetensors/make.py [name…]

Needs torch and transformers, which neither serving nor the tests need; `make golden` installs them
into an environment of their own. Every module in `references` has a table `CASES`.
"""

import importlib
import json
import pkgutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import references
import torch
from references.reference import Reference
from safetensors.numpy import save_file

HERE = Path(__file__).parent


def cases() -> dict[str, Callable[[], Reference]]:
    found: dict[str, Callable[[], Reference]] = {}
    for module in pkgutil.iter_modules(references.__path__):
        found |= getattr(importlib.import_module(f"references.{module.name}"), "CASES", {})
    return found


def make(folder: Path, reference: Reference) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(reference.config, indent=1) + "\n")
    save_file(reference.tensors, folder / "model.safetensors")
    for path, content in getattr(reference, "files", {}).items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(content)
    golden = {}
    for number, inputs in enumerate(reference.inputs):
        golden |= {f"{number}/in/{name}": array for name, array in inputs.items()}
        outputs = reference.infer(inputs)
        golden |= {f"{number}/out/{name}": array for name, array in outputs.items()}
    np.savez_compressed(folder / "golden.npz", **golden)


def main() -> None:
    wanted = set(sys.argv[1:])
    for name, reference in cases().items():
        if not wanted or name in wanted:
            torch.manual_seed(0)  # the same weights every time
            make(HERE / name, reference())
            print(name)


if __name__ == "__main__":
    main()
