"""Twelve models of three sizes, with questions whose right answers are known beforehand."""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import onnxruntime

import models
from e2e.client import Reply, infer_body, tensor
from e2e.daemon import path

Array = npt.NDArray[Any]

TOLERANCE: Final = 1e-3
"""How far an answer may be from the lone run's: merging changes the order of additions.

The answers to different questions are much further apart; `Question.distance` tells.
"""

_PER_SIZE: Final = 4
_QUESTIONS: Final = 8
_SMALL: Final = 32  # features and classes; its 4 kB of weights are enough to be mapped
_MEDIUM: Final = {"layers": 2, "hidden": 128, "vocab": 6000}  # 5 MB
_LARGE: Final = {"layers": 4, "hidden": 256, "vocab": 16000}  # 30 MB
_TOKENS: Final = (4, 8)


class Question(NamedTuple):
    """A request's body, and the outputs of a run of the original file on it alone."""

    body: bytes
    answer: dict[str, Array]

    def is_answered_by(self, reply: Reply) -> bool:
        return self._distance(reply.outputs()) <= TOLERANCE

    def distance(self, other: "Question") -> float:
        """How far the answers are apart, in the output that tells most."""
        return self._distance(other.answer)

    def _distance(self, outputs: Mapping[str, Any]) -> float:
        if outputs.keys() != self.answer.keys():
            return np.inf
        return max(_gap(wanted, outputs[name]) for name, wanted in self.answer.items())


class Subject(NamedTuple):
    """One model of the zoo."""

    model_id: str
    questions: list[Question]

    @property
    def target(self) -> str:
        return path(self.model_id, "infer")


def build_zoo(folder: Path) -> list[Subject]:
    """Write the models to a folder, and ask each all its questions."""
    return [_subject(file, seed) for seed, file in enumerate(_files(folder))]


def _files(folder: Path) -> Iterator[Path]:
    for number in range(_PER_SIZE):
        small = folder / f"small-{number}.onnx"
        yield models.linear_model(small, _SMALL, _SMALL, seed=number)
        yield models.encoder_model(folder / f"medium-{number}.onnx", **_MEDIUM, seed=number)
        yield models.encoder_model(folder / f"large-{number}.onnx", **_LARGE, seed=number)


def _subject(file: Path, seed: int) -> Subject:
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    rng = np.random.default_rng(seed)
    draw = _features if file.stem.startswith("small") else _tokens
    questions = []
    for _ in range(_QUESTIONS):
        feeds = draw(rng)
        body = infer_body(*(tensor(n, a.shape, a.ravel().tolist()) for n, a in feeds.items()))
        outputs = session.run(None, feeds)
        answer = {name: a.ravel() for name, a in zip(names, outputs, strict=True)}
        questions.append(Question(body, answer))
    return Subject(file.stem, questions)


def _features(rng: np.random.Generator) -> dict[str, Array]:
    return {"X": rng.standard_normal((rng.integers(1, 4), _SMALL), dtype=np.float32)}


def _tokens(rng: np.random.Generator) -> dict[str, Array]:
    ids = rng.integers(1, _MEDIUM["vocab"], (rng.integers(1, 3), rng.choice(_TOKENS)))
    kinds = {"attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    return {"input_ids": ids, **kinds}


def _gap(wanted: Array, given: Any) -> float:
    got = np.asarray(given, dtype=np.float64)
    return float(np.abs(wanted - got).max()) if got.shape == wanted.shape else np.inf


def nearest_answers(zoo: Sequence[Subject]) -> float:
    """The smallest distance between the answers to any two different questions of the zoo."""
    questions = [question for subject in zoo for question in subject.questions]
    bodies = [json.loads(question.body) for question in questions]
    pairs = itertools.combinations(range(len(questions)), 2)
    return min(questions[a].distance(questions[b]) for a, b in pairs if bodies[a] != bodies[b])
