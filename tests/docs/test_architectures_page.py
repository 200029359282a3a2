"""The page about architectures lists them all, and shows code that there is."""

import re
from pathlib import Path

from golden.safetensors.table import BEGIN, END
from snoozeml.prepare.safetensors.architectures import supported

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "architectures.md").read_text(encoding="utf-8")
SHOWN = (
    ROOT / "src/snoozeml/prepare/safetensors/bert.py",
    ROOT / "tests/golden/safetensors/references/bert.py",
)


def test_the_table_lists_every_architecture_and_a_small_difference() -> None:
    rows = TEXT.partition(BEGIN)[2].partition(END)[0].splitlines()[2:]
    differences = {}
    for row in rows:
        name, _, models, difference = [cell.strip(" `") for cell in row.strip("|").split("|")]
        assert int(models) > 0
        differences[name] = float(difference)
    assert list(differences) == supported()
    assert max(differences.values()) < 1e-5


def test_code_on_the_page_is_code_that_runs() -> None:
    sources = [path.read_text(encoding="utf-8") for path in SHOWN]
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert blocks
    assert [block for block in blocks if not any(block in source for source in sources)] == []


def test_modules_that_the_page_names_are_there() -> None:
    table = TEXT.partition("| Module |")[2].partition("\n\n")[0]
    for name in re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE):
        assert (ROOT / f"src/snoozeml/prepare/safetensors/{name}.py").is_file()
