"""The page about architectures lists them all, and shows code that there is."""

import re
from collections import Counter
from pathlib import Path

from golden.safetensors.compare import FOLDERS
from golden.safetensors.table import BEGIN, END
from snoozeml.prepare.safetensors.architectures import supported
from snoozeml.prepare.safetensors.configuration import Config
from snoozeml.prepare.safetensors.model import CONFIG_FILE

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "architectures.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip(" `") for cell in row.strip("|").split("|")]
    for row in TEXT.partition(BEGIN)[2].partition(END)[0].splitlines()[2:]
]
SHOWN = (
    ROOT / "src/snoozeml/prepare/safetensors/bert.py",
    ROOT / "tests/golden/safetensors/references/bert.py",
)


def test_the_table_lists_every_architecture_and_a_small_difference() -> None:
    assert [name for name, *_ in ROWS] == supported()
    assert max(float(difference) for *_, difference in ROWS) < 1e-5


def test_the_table_counts_the_models_that_there_are() -> None:
    configurations = [Config.read(folder / CONFIG_FILE) for folder in FOLDERS]
    there = Counter(name for config in configurations for name in config.texts("architectures"))
    assert {name: int(models) for name, _, models, _ in ROWS} == there, "write it with `make docs`"


def test_code_on_the_page_is_code_that_runs() -> None:
    sources = [path.read_text(encoding="utf-8") for path in SHOWN]
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert blocks
    assert [block for block in blocks if not any(block in source for source in sources)] == []


def test_modules_that_the_page_names_are_there() -> None:
    table = TEXT.partition("| Module |")[2].partition("\n\n")[0]
    for name in re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE):
        assert (ROOT / f"src/snoozeml/prepare/safetensors/{name}.py").is_file()
