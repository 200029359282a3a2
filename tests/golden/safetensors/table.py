"""Writes the table of `docs/architectures.md`: every architecture, and how far plans are off.

    python -m golden.safetensors.table

`make docs` runs it, with the folder `tests` on the path.
"""

import tempfile
from pathlib import Path

from golden.safetensors.compare import FOLDERS, largest_difference
from snoozeml.prepare.safetensors.architectures import supported
from snoozeml.prepare.safetensors.configuration import Config
from snoozeml.prepare.safetensors.model import CONFIG_FILE

PAGE = Path(__file__).parents[3] / "docs" / "architectures.md"
BEGIN, END = "<!-- table: written by `make docs` -->\n", "<!-- end of table -->\n"
_HEAD = "| Architecture | Reference | Models | Largest difference |\n|---|---|---|---|\n"


def table() -> str:
    """Differences are relative to the largest value of an output, the worst of all requests."""
    models: dict[str, list[tuple[Config, float]]] = {name: [] for name in supported()}
    with tempfile.TemporaryDirectory() as cache_dir:
        for folder in FOLDERS:
            config = Config.read(folder / CONFIG_FILE)
            difference = largest_difference(folder, Path(cache_dir))
            for name in config.texts("architectures"):
                models[name].append((config, difference))
    return _HEAD + "".join(_row(name, compared) for name, compared in models.items())


def _row(name: str, compared: list[tuple[Config, float]]) -> str:
    references = sorted({_reference(name, config) for config, _ in compared})
    largest = max(difference for _, difference in compared)
    return f"| `{name}` | {', '.join(references)} | {len(compared)} | {largest:.0e} |\n"


def _reference(name: str, config: Config) -> str:
    if name == "MLP":
        return "torch"
    version = config.text("transformers_version", "")
    return f"transformers {version}" if version else "numpy"


def main() -> None:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(before + BEGIN + table() + END + after, encoding="utf-8")


if __name__ == "__main__":
    main()
