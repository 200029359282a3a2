"""A folder that a test fills with models and a configuration."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from snoozeml.config.loading import Overrides, load
from snoozeml.config.schema import Configuration, ModelConfig


class House:
    """What lies in one models folder, and what `load` makes of it.

    Model files are empty: nothing here looks inside them.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, *names: str) -> None:
        for name in names:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()

    def write(self, text: str, name: str = "models.toml") -> Path:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def load(self, environ: Mapping[str, str] | None = None, **flags: Any) -> Configuration:
        flags = {"models_dir": self.folder, **flags}
        return load(Overrides(**flags), {"SNOOZE_CACHE_DIR": "/cache", **(environ or {})})

    def models(self) -> dict[str, ModelConfig]:
        return {model.id: model for model in self.load().models}

    def files(self) -> dict[str, str]:
        """The file of each model, relative to the folder."""
        root = self.folder.resolve()
        return {
            model_id: str(model.path.relative_to(root)) for model_id, model in self.models().items()
        }

    def batch_sizes(self) -> dict[str, int]:
        return {model.id: model.max_batch_size for model in self.load().models}
