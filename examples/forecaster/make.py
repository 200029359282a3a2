"""Put the forecaster into a models folder: `python examples/forecaster/make.py [FOLDER]`.

The folder gets the model's code, an interpreter of its own with numpy (from PyPI), and weights that
are trained here, in seconds. Nothing of it needs SnoozeML.
"""

import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
DEFAULT_FOLDER: Final = Path("demo/models/forecaster")


def make(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file in (*(HERE / "model").iterdir(), HERE / "network.py"):
        if file.is_file():
            shutil.copy(file, folder)
    python = folder / "venv" / "bin" / "python"
    if not python.exists():
        venv.create(folder / "venv", with_pip=True)
    install = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "numpy")
    subprocess.run([python, *install], check=True)
    subprocess.run([python, HERE / "train.py", folder / "weights.npz"], check=True)


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_FOLDER)
