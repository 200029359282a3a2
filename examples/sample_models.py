"""Two small models to try SnoozeML with: `python examples/sample_models.py [FOLDER]`.

iris.onnx: a random forest that tells three kinds of iris by their measures, trained here.
silero-vad.onnx: Silero's pretrained voice detector (MIT licence), taken out of the package
`silero-vad`, without the package's own dependency on a training framework.

The package is kept in build/, so that another run needs no network.
"""

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

BUILD: Final = Path(__file__).resolve().parents[1] / "build"
DEFAULT_FOLDER: Final = Path("demo/models")

SILERO: Final = "silero-vad==6.2.3"
SILERO_MEMBER: Final = "silero_vad/data/silero_vad_16k_op15.onnx"
SILERO_SHA256: Final = "7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49"

SETTINGS: Final = """\
[defaults]
idle_timeout_secs = 5   # so short that one can watch the models fall asleep

[models.iris]
description = "Which iris is it? Sepal length and width, petal length and width, in cm"

[models.silero-vad]
description = "Does somebody speak? 64 + 512 samples at 16 kHz"
"""


def prepare(folder: Path) -> None:
    """Put both models and a models.toml into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "iris.onnx").write_bytes(trained_iris())
    (folder / "silero-vad.onnx").write_bytes(pretrained_silero())
    (folder / "models.toml").write_text(SETTINGS, encoding="utf-8")


def trained_iris() -> bytes:
    """A random forest; zipmap off, so that probabilities are one tensor and not dictionaries."""
    from skl2onnx import to_onnx
    from sklearn.datasets import load_iris
    from sklearn.ensemble import RandomForestClassifier

    measures, kinds = load_iris(return_X_y=True)
    forest = RandomForestClassifier(n_estimators=100, random_state=0).fit(measures, kinds)
    sample = measures[:1].astype("float32")
    model: bytes = to_onnx(forest, sample, options={"zipmap": False}).SerializeToString()
    return model


def pretrained_silero() -> bytes:
    with zipfile.ZipFile(silero_wheel()) as wheel:
        model = wheel.read(SILERO_MEMBER)
    digest = hashlib.sha256(model).hexdigest()
    if digest != SILERO_SHA256:
        raise SystemExit(f"{SILERO_MEMBER} has the digest {digest}, not {SILERO_SHA256}")
    return model


def silero_wheel() -> Path:
    """The package's file, fetched once and then kept in build/."""
    pattern = f"silero_vad-{SILERO.partition('==')[2]}-*.whl"
    if not any(BUILD.glob(pattern)):
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*pip, "download", "-q", "--no-deps", "-d", str(BUILD), SILERO], check=True)
    return next(BUILD.glob(pattern))


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_FOLDER
    prepare(folder)
    print(f"{folder}: iris.onnx, silero-vad.onnx, models.toml")


if __name__ == "__main__":
    main()
