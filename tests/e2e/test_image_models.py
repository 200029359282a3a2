"""Image models over HTTP: many clients share batches and get what they would get alone."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from e2e.client import Reply, infer_body, tensor
from e2e.conftest import Serve
from e2e.daemon import Daemon, path
from golden.safetensors.compare import HERE, requests
from snoozeml.wire.tensors import Array

CLIENTS = 12


def body(**inputs: Array) -> bytes:
    return infer_body(*(tensor(n, a.shape, a.ravel().tolist()) for n, a in inputs.items()))


def install(folder: Path, name: str) -> None:
    """A checkpoint of the golden files, as users have it."""
    (folder / name).mkdir()
    for file in ("config.json", "model.safetensors"):
        shutil.copy(HERE / name / file, folder / name)


async def ask(daemon: Daemon, model_id: str, bodies: list[bytes]) -> list[Reply]:
    """All at once, each on a connection of its own."""
    connections = [await daemon.connect_async() for _ in bodies]
    target = path(model_id, "infer")
    asked = (c.request("POST", target, b) for c, b in zip(connections, bodies, strict=True))
    replies = await asyncio.gather(*asked)
    for connection in connections:
        connection.close()
    return replies


def test_many_clients_of_an_image_model_share_batches(serve: Serve, models_dir: Path) -> None:
    name = "vit-image-classification"
    install(models_dir, name)
    daemon = serve('[defaults]\nbatching = "fixed"\nmax_batch_delay_ms = 300\n')
    random = np.random.default_rng(3)
    bodies = [
        body(pixel_values=random.normal(size=(1 + number % 2, 3, 12, 12)).astype(np.float32))
        for number in range(CLIENTS)
    ]

    together = asyncio.run(ask(daemon, name, bodies))

    assert max(int(reply.headers["x-snooze-batch-size"]) for reply in together) > 2
    alone = [daemon.request("POST", path(name, "infer"), one).outputs() for one in bodies]
    for reply, wanted in zip(together, alone, strict=True):
        np.testing.assert_allclose(reply.outputs()["logits"], wanted["logits"], atol=1e-5)
    assert np.ptp([wanted["logits"][0] for wanted in alone]) > 0.1


def test_images_of_other_sizes_are_answered_like_the_reference(
    serve: Serve, models_dir: Path
) -> None:
    install(models_dir, "dinov2")
    daemon = serve()
    for inputs, wanted in requests(HERE / "dinov2"):
        reply = daemon.request("POST", path("dinov2", "infer"), body(**inputs)).json()
        for output in reply["outputs"]:
            answer = np.reshape(output["data"], output["shape"])
            np.testing.assert_allclose(answer, wanted[output["name"]], atol=1e-5)


def test_either_tower_of_clip_can_be_asked_alone(serve: Serve, models_dir: Path) -> None:
    install(models_dir, "clip")
    daemon = serve()
    inputs, wanted = requests(HERE / "clip")[-1]
    texts = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    images = {"pixel_values": inputs["pixel_values"][:1]}

    def outputs(**given: Array) -> dict[str, Any]:
        return daemon.request("POST", path("clip", "infer"), body(**given)).outputs()

    both = outputs(**texts, **images)
    assert both.keys() == {"text_embeds", "image_embeds"}
    for name, answer in (outputs(**texts) | outputs(**images)).items():
        np.testing.assert_allclose(answer, wanted[name][: len(answer) // 7].ravel(), atol=1e-5)
        np.testing.assert_allclose(answer, both[name], atol=1e-5)


def test_an_unknown_architecture_is_named(serve: Serve, models_dir: Path) -> None:
    install(models_dir, "vit")
    config = {"architectures": ["SwinModel"]}
    (models_dir / "vit" / "config.json").write_text(json.dumps(config))
    reply = serve().request(
        "POST", path("vit", "infer"), body(pixel_values=np.ones((1, 3, 12, 12)))
    )
    assert (reply.status, reply.json()["code"]) == (501, "unsupported_architecture")
    assert "SwinModel" in reply.json()["error"]
