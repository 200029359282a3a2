"""SnoozeML in half a minute: `make demo`.

Three sleeping models are woken by a request, answer more of them, fall asleep when nobody asks, and
are woken once more.
"""

import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from sample_models import prepare
from tokenizers import Tokenizer

MODELS: Final = Path("demo/models")
CACHE: Final = Path("demo/cache")
LOG: Final = Path("demo/daemon.log")
SNOOZE: Final = str(Path(sys.executable).with_name("snooze"))
WARM_REQUESTS: Final = 100
ASLEEP_WITHIN_S: Final = 20

KINDS: Final = ("setosa", "versicolor", "virginica")
FLOWERS: Final = [[5.1, 3.5, 1.4, 0.2], [6.1, 2.8, 4.0, 1.3], [6.3, 3.3, 6.0, 2.5]]

SENTENCE: Final = "The cat naps on the warm windowsill."
OTHERS: Final = (
    "A kitten is sleeping in the sun by the window.",
    "Central banks raised interest rates once more.",
)

RATE_HZ: Final = 16_000
CHUNK: Final = 512  # samples that the voice detector judges at a time
CONTEXT: Final = 64  # samples before them that it wants to see again

Server: TypeAlias = http.client.HTTPConnection

console = Console(highlight=False)


def main() -> None:
    console.rule("[bold]SnoozeML[/]: models that sleep until somebody asks")
    console.print("Preparing three sample models ...")
    shutil.rmtree(CACHE, ignore_errors=True)  # or "the first time ever" would not be
    prepare(MODELS)
    with daemon() as server:
        show_status(server, "Nobody has asked yet: all models sleep.")
        first = {name: ask(server) for name, ask in SHOWS.items()}
        awake = {name: warm(question, server) for name, question in QUESTIONS.items()}
        show_status(server, "All are awake.")
        wait_until_asleep(server)
        show_status(server, "All sleep again, and have given their memory back.")
        woken = {name: question(server) for name, question in QUESTIONS.items()}
    show_times(first, woken, awake)
    console.print(f"The daemon stopped in order. Its log: {LOG}")


@contextmanager
def daemon() -> Iterator[Server]:
    """`snooze serve` on a free port; it must end with exit code 0."""
    ready, told_ready = os.pipe()
    command = [SNOOZE, "serve", "--models-dir", str(MODELS), "--port", "0", "--no-grpc"]
    with LOG.open("w") as log:
        process = subprocess.Popen(
            [*command, "--ready-fd", str(told_ready)],
            env={**os.environ, "SNOOZE_CACHE_DIR": str(CACHE)},
            stderr=log,
            pass_fds=[told_ready],
        )
    os.close(told_ready)
    try:
        with os.fdopen(ready) as lines:
            line = lines.readline()  # empty when the daemon ended instead of getting ready
        if line:
            yield http.client.HTTPConnection(json.loads(line)["http"], timeout=60)
    finally:
        process.terminate()
        code = process.wait(timeout=30)
    if code != 0:
        raise SystemExit(f"the daemon ended with {code}:\n{LOG.read_text()}")


def ask_iris(server: Server) -> float:
    """Show what the model makes of three flowers; how long the answer took, in milliseconds."""
    outputs, took_ms = infer(server, "iris", tensor("X", np.array(FLOWERS)))
    console.print("\n[bold]iris[/], three flowers:")
    chances = outputs["probabilities"].reshape(len(FLOWERS), len(KINDS))
    for flower, kind, chance in zip(FLOWERS, outputs["label"], chances, strict=True):
        console.print(f"  {flower} cm -> {KINDS[int(kind)]} ({chance.max():.0%})")
    if [KINDS[int(kind)] for kind in outputs["label"]] != list(KINDS):
        raise SystemExit("these are one flower of each kind, and the model should know them")
    return took_ms


def ask_silero(server: Server) -> float:
    """Show what the voice detector hears in two seconds; how long its first answer took, in ms."""
    console.print("\n[bold]silero-vad[/], two seconds of sound:")
    voice, took_ms = listen(server, hummed_vowel())
    silence, _ = listen(server, np.zeros(RATE_HZ))
    console.print(f"  somebody hums  {bars(voice)}  up to {max(voice):.0%} sure of a voice")
    console.print(f"  silence        {bars(silence)}  up to {max(silence):.0%}")
    if max(voice) < 0.8 or max(silence) > 0.2:
        raise SystemExit("the voice detector should tell a voice from silence")
    return took_ms


def ask_minilm(server: Server) -> float:
    """Show how alike sentences are; how long the first answer took, in milliseconds."""
    console.print(f'\n[bold]minilm[/], how close others come to "{SENTENCE}":')
    meaning, took_ms = embed(server, SENTENCE)
    alike = [float(meaning @ embed(server, other)[0]) for other in OTHERS]
    for other, cosine in zip(OTHERS, alike, strict=True):
        console.print(f"  {cosine:5.2f}  {other}")
    if alike[0] < 0.5 or alike[1] > 0.2:
        raise SystemExit("the first of them means nearly the same, and the second does not")
    return took_ms


def embed(server: Server, text: str) -> tuple[np.ndarray, float]:
    """A text as a vector of length 1, and how long the answer took, in milliseconds."""
    tokens = np.array([tokenizer().encode(text).ids])
    name = "sentence_embedding"
    outputs, took_ms = infer(server, "minilm", tensor("input_ids", tokens), outputs=[name])
    return outputs[name][0], took_ms


@cache
def tokenizer() -> Tokenizer:
    found = Tokenizer.from_file(str(MODELS / "minilm" / "tokenizer.json"))
    found.no_padding()  # it is stored with a padding to 128 tokens
    return found


def listen(server: Server, sound: np.ndarray) -> tuple[list[float], float]:
    """Feed a sound chunk by chunk, handing the model's state back to it each time."""
    state = np.zeros((2, 1, 128))
    sure, times_ms = [], []
    for start in range(CONTEXT, len(sound) - CHUNK, CHUNK):
        chunk = sound[start - CONTEXT : start + CHUNK]
        outputs, took_ms = infer(server, "silero-vad", *silero_inputs(chunk, state))
        state = outputs["stateN"]
        sure.append(float(outputs["output"][0, 0]))
        times_ms.append(took_ms)
    return sure, times_ms[0]


def hummed_vowel() -> np.ndarray:
    """A second of "ah": the harmonics of a pitch, as loud as the formants of a throat make them."""
    t = np.arange(RATE_HZ) / RATE_HZ
    phase = 2 * np.pi * 120 * t + 5 * np.sin(2 * np.pi * 3 * t)  # 120 Hz, never quite steady
    formants = ((700, 130, 1.0), (1220, 120, 0.5), (2600, 160, 0.25))  # Hz, width in Hz, loudness
    sound = np.zeros(RATE_HZ)
    for harmonic in range(1, 40):
        for peak, width, loudness in formants:
            share = loudness / (1 + ((harmonic * 120 - peak) / width) ** 2)
            sound += share * np.sin(harmonic * phase)
    syllables = np.clip(np.sin(2 * np.pi * 4 * t), 0, 1)
    loudest = float(np.abs(sound).max())
    return syllables * sound / loudest / 2


def bars(shares: list[float]) -> str:
    return "".join("▁▂▃▄▅▆▇█"[min(int(share * 8), 7)] for share in shares)


def warm(question: Callable[[Server], float], server: Server) -> float:
    return statistics.median(question(server) for _ in range(WARM_REQUESTS))


def one_flower(server: Server) -> float:
    return infer(server, "iris", tensor("X", np.array(FLOWERS[:1])))[1]


def one_chunk(server: Server) -> float:
    silence, state = np.zeros(CONTEXT + CHUNK), np.zeros((2, 1, 128))
    return infer(server, "silero-vad", *silero_inputs(silence, state))[1]


def one_sentence(server: Server) -> float:
    return embed(server, SENTENCE)[1]


def silero_inputs(chunk: np.ndarray, state: np.ndarray) -> list[dict[str, Any]]:
    return [
        tensor("input", chunk[np.newaxis]),
        tensor("state", state),
        tensor("sr", np.array(RATE_HZ)),
    ]


def tensor(name: str, values: np.ndarray) -> dict[str, Any]:
    return {"name": name, "shape": values.shape, "data": values.ravel().tolist()}


def infer(
    server: Server, model: str, *inputs: dict[str, Any], outputs: list[str] | None = None
) -> tuple[dict[str, np.ndarray], float]:
    """The outputs by name, and how long they took to come, in milliseconds.

    Args:
        outputs: those that are wanted; None: all.
    """
    body = json.dumps({"inputs": inputs, "outputs": outputs}).encode()
    started = time.perf_counter()
    answer = ask(server, "POST", f"/v1/models/{model}/infer", body)
    took_ms = (time.perf_counter() - started) * 1000
    arrays = {
        output["name"]: np.array(output["data"]).reshape(output["shape"])
        for output in answer["outputs"]
    }
    return arrays, took_ms


def ask(server: Server, method: str, path: str, body: bytes | None = None) -> Any:
    server.request(method, path, body, {"Content-Type": "application/json"})
    response = server.getresponse()
    answer = json.load(response)
    if response.status != http.client.OK:
        raise SystemExit(f"{method} {path} was answered {response.status}: {answer}")
    return answer


def show_status(server: Server, title: str) -> None:
    console.print(f"\n[bold]{title}[/]\n$ snooze status")
    console.file.flush()  # what the command prints belongs below it
    endpoint = f"http://{server.host}:{server.port}"
    subprocess.run([SNOOZE, "status", "--endpoint", endpoint], check=True)


def wait_until_asleep(server: Server) -> None:
    console.print("Now nobody asks for a while ...")
    gives_up_at = time.monotonic() + ASLEEP_WITHIN_S
    while any(model["state"] != "idle" for model in ask(server, "GET", "/v1/models")):
        if time.monotonic() > gives_up_at:
            raise SystemExit(f"a model is still awake after {ASLEEP_WITHIN_S} s")
        time.sleep(0.1)


def show_times(first: dict[str, float], woken: dict[str, float], awake: dict[str, float]) -> None:
    console.print("\n[bold]Time to an answer, through HTTP[/]")
    table = Table("model", box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("the first time ever", "woken from sleep", "awake (median)"):
        table.add_column(heading, justify="right")
    for model in first:
        times_ms = (first[model], woken[model], awake[model])
        table.add_row(model, *(f"{took_ms:.1f} ms" for took_ms in times_ms))
    console.print(table)


Question: TypeAlias = Callable[[Server], float]
"""Asks a model; how long the answer took, in milliseconds."""

SHOWS: Final[dict[str, Question]] = {
    "iris": ask_iris,
    "silero-vad": ask_silero,
    "minilm": ask_minilm,
}
QUESTIONS: Final[dict[str, Question]] = {
    "iris": one_flower,
    "silero-vad": one_chunk,
    "minilm": one_sentence,
}


if __name__ == "__main__":
    main()
