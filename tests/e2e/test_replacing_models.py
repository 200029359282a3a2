"""A model is replaced as a whole, without a request that fails, whatever happens meanwhile."""

import asyncio
import shutil
import threading
import time
import tomllib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random
from signal import SIGKILL

import pytest

import models
from archives import zipped_folder
from e2e.client import AsyncConnection, infer_body, request_bytes, tensor
from e2e.conftest import Serve
from e2e.daemon import Daemon, path
from e2e.eventually import eventually
from e2e.uploading import HEADERS, TARGET, drafts, form, left_over, upload
from golden.safetensors.compare import HERE
from python_models import python_model

X = tensor("x", [1, 1], [3])
ASK = infer_body(X)

PYTHON = "[server]\nallow_python_upload = true\n"


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    """A cache of its own, because what is left in it counts."""
    return tmp_path / "cache"


@pytest.fixture
def once(tmp_path: Path) -> bytes:
    """A model that answers 3 to X."""
    return models.identity_model(tmp_path / "once.onnx").read_bytes()


@pytest.fixture
def twice(tmp_path: Path) -> bytes:
    """A model that answers 6 to X."""
    return zipped_folder(python_model(tmp_path / "twice"))


def answer(daemon: Daemon, model_id: str = "m") -> float:
    value: float = daemon.infer(model_id, X).outputs()["y"][0]
    return value


def _file(folder: Path, once: bytes) -> None:
    (folder / "m.onnx").write_bytes(once)


def _folder(folder: Path, once: bytes) -> None:
    (folder / "m").mkdir()
    (folder / "m" / "whatever.onnx").write_bytes(once)


def _one_of_many(folder: Path, once: bytes) -> None:
    (folder / "many").mkdir()
    for name in ("m.onnx", "other.onnx", "third.onnx"):
        (folder / "many" / name).write_bytes(once)


def _linked_folder(folder: Path, once: bytes) -> None:
    (folder.parent / "elsewhere").mkdir()
    (folder.parent / "elsewhere" / "x.onnx").write_bytes(once)
    (folder / "m").symlink_to(folder.parent / "elsewhere")


def _entry_elsewhere(folder: Path, once: bytes) -> None:
    (folder.parent / "elsewhere.onnx").write_bytes(once)
    with (folder / "models.toml").open("a") as file:
        file.write('[models.m]\npath = "../elsewhere.onnx"\nmax_batch_size = 4\n')


def _entry_inside(folder: Path, once: bytes) -> None:
    (folder / "x.onnx").write_bytes(once)
    with (folder / "models.toml").open("a") as file:
        file.write('[models.m]\npath = "x.onnx"\nmax_batch_size = 4\n')


@pytest.mark.parametrize(
    "lay", [_file, _folder, _one_of_many, _linked_folder, _entry_elsewhere, _entry_inside]
)
def test_a_model_is_replaced_wherever_it_lies(
    serve: Serve,
    models_dir: Path,
    once: bytes,
    twice: bytes,
    lay: Callable[[Path, bytes], None],
) -> None:
    (models_dir / "models.toml").write_text(PYTHON)
    lay(models_dir, once)
    daemon = serve()
    outside = {str(p) for p in models_dir.parent.glob("elsewhere*")}
    batch = daemon.model("m")["max_batch_size"]
    assert answer(daemon) == 3

    refused = upload(daemon, twice, "twice.zip", model_id="m")
    assert (refused.status, answer(daemon)) == (400, 3)
    replaced = upload(daemon, twice, "twice.zip", model_id="m", overwrite="true")

    assert replaced.status == 200, replaced
    assert replaced.json()["max_batch_size"] == batch
    assert answer(daemon) == 6
    assert {str(p) for p in models_dir.parent.glob("elsewhere*")} == outside
    if (models_dir / "many").exists():
        assert answer(daemon, "other") == 3
    again = upload(daemon, once, "once.onnx", model_id="m", overwrite="true", max_replicas="2")
    assert again.status == 200, again
    assert answer(daemon) == 3
    assert len(drafts(models_dir)) == 1
    entry = tomllib.loads((models_dir / "models.toml").read_text())["models"]["m"]
    assert "path" not in entry
    assert entry["max_replicas"] == 2
    assert daemon.stop() == 0
    assert answer(serve()) == 3


def _checkpoint_beside(folder: Path, once: bytes) -> None:
    shutil.copytree(HERE / "mlp", folder / "m")
    (folder / "m" / "other.onnx").write_bytes(once)


def _one_of_two(folder: Path, once: bytes) -> None:
    """Alone in its folder, the other one would be called by the folder's name."""
    (folder / "many").mkdir()
    for name in ("m.onnx", "other.onnx"):
        (folder / "many" / name).write_bytes(once)


@pytest.mark.parametrize("lay", [_checkpoint_beside, _one_of_two])
def test_a_model_is_not_replaced_at_the_cost_of_others(
    serve: Serve, models_dir: Path, cache_dir: Path, once: bytes, lay: Callable[[Path, bytes], None]
) -> None:
    lay(models_dir, once)
    daemon = serve()
    assert answer(daemon, "other") == 3
    before = left_over(models_dir, cache_dir)
    reply = upload(daemon, once, "x.onnx", model_id="m", overwrite="true")
    assert reply.status == 400
    assert "replacing m would also change other" in reply.json()["error"]
    assert left_over(models_dir, cache_dir) == before
    assert drafts(models_dir) == []
    assert answer(daemon, "other") == 3


def test_the_version_before_leaves_no_file_and_no_plan(
    serve: Serve, models_dir: Path, cache_dir: Path, tmp_path: Path
) -> None:
    daemon = serve()
    contents = [
        models.linear_model(tmp_path / f"{seed}.onnx", seed=seed).read_bytes() for seed in range(3)
    ]
    assert upload(daemon, contents[0], "m.onnx").status == 200
    count = len(left_over(models_dir, cache_dir))
    for content in contents:
        assert upload(daemon, content, "m.onnx", overwrite="true").status == 200
        assert len(left_over(models_dir, cache_dir)) == count


def test_models_of_one_content_keep_their_common_plan(
    serve: Serve, cache_dir: Path, once: bytes, twice: bytes
) -> None:
    daemon = serve(PYTHON)
    for model_id in ("a", "b"):
        assert upload(daemon, once, "x.onnx", model_id=model_id).status == 200
    assert len(list(cache_dir.glob("plans/*/plan.onnx"))) == 1
    upload(daemon, twice, "x.zip", model_id="a", overwrite="true")
    assert len(list(cache_dir.glob("plans/*/plan.onnx"))) == 1
    assert answer(daemon, "b") == 3
    upload(daemon, twice, "x.zip", model_id="b", overwrite="true")
    assert list(cache_dir.glob("plans/*/plan.onnx")) == []


def test_replacing_under_load_fails_no_request(
    serve: Serve, models_dir: Path, once: bytes, twice: bytes
) -> None:
    daemon = serve(PYTHON)
    assert upload(daemon, once, "m.onnx").status == 200
    answers, failures = asyncio.run(_replace_under_load(daemon, 2 * [(twice, 6), (once, 3)]))
    assert failures == []
    assert set(answers) == {3, 6}
    assert len(answers) > 100
    assert answer(daemon) == 3
    assert len(drafts(models_dir)) == 1


async def _replace_under_load(
    daemon: Daemon, versions: Sequence[tuple[bytes, float]]
) -> tuple[list[float], list[str]]:
    answers: list[float] = []
    failures: list[str] = []
    done = asyncio.Event()
    clients = [await daemon.connect_async() for _ in range(8)]
    crowd = [asyncio.create_task(_ask(c, done, answers, failures)) for c in clients]
    for version, wanted in versions:
        name = "m.zip" if version[:2] == b"PK" else "m.onnx"
        reply = await asyncio.to_thread(upload, daemon, version, name, overwrite="true")
        assert reply.status == 200, reply
        # A request that comes after the answer meets the new version.
        assert await asyncio.to_thread(answer, daemon) == wanted
    done.set()
    await asyncio.gather(*crowd)
    for client in clients:
        client.close()
    return answers, failures


async def _ask(
    client: AsyncConnection, done: asyncio.Event, answers: list[float], failures: list[str]
) -> None:
    while not done.is_set():
        reply = await client.request("POST", path("m", "infer"), ASK)
        if reply.status == 200:
            answers.append(reply.outputs()["y"][0])
        else:
            failures.append(repr(reply))


def test_the_version_before_serves_until_the_new_one_is_awake(
    serve: Serve, once: bytes, tmp_path: Path
) -> None:
    daemon = serve(PYTHON)
    assert upload(daemon, once, "m.onnx").status == 200
    assert answer(daemon) == 3
    slow = python_model(tmp_path / "slow", head="import time", load="time.sleep(3)")
    with ThreadPoolExecutor(1) as threads:
        replacing = threads.submit(upload, daemon, zipped_folder(slow), "m.zip", overwrite="true")
        waits_s = []
        while not replacing.done():
            asked_at = time.monotonic()
            assert answer(daemon) in (3, 6)
            waits_s.append(time.monotonic() - asked_at)
        assert replacing.result().status == 200
    assert answer(daemon) == 6
    assert daemon.model("m")["loads"] == 1  # of this version
    assert max(waits_s) < 2


@pytest.fixture
def large(tmp_path: Path) -> Callable[..., bytes]:
    """`large(factor)` is a model that multiplies, of which two do not fit into `NARROW`."""

    def make(factor: int, load: str = "time.sleep(1)") -> bytes:
        folder = python_model(
            tmp_path / f"times {factor}",
            f'return {{"y": inputs["x"] * {factor}}}',
            head="import pathlib, time",
            load=f'self.data = pathlib.Path(model_dir, "data").read_bytes(); {load}',
        )
        (folder / "data").write_bytes(Random(factor).randbytes(40 << 20))
        return zipped_folder(folder)

    return make


NARROW = PYTHON + 'max_memory = "100MiB"\n'


def test_where_there_is_no_room_for_both_requests_wait_and_none_fails(
    serve: Serve, large: Callable[..., bytes]
) -> None:
    daemon = serve(NARROW)
    assert upload(daemon, large(1), "m.zip").status == 200
    assert answer(daemon) == 3
    answers, failures = asyncio.run(
        _replace_under_load(daemon, [(large(2), 6), (large(1), 3), (large(2), 6)])
    )
    assert failures == []
    assert set(answers) == {3, 6}
    assert len(answers) > 100
    assert len(_refused_beside(daemon)) == 3


def _refused_beside(daemon: Daemon) -> list[str]:
    """How often a new version has found no room beside the one before."""
    return [line["error"] for line in daemon.log() if "no room" in line.get("error", "")]


def test_a_version_that_proves_broken_when_it_is_alone_gives_way_to_the_one_before(
    serve: Serve, models_dir: Path, cache_dir: Path, large: Callable[..., bytes]
) -> None:
    daemon = serve(NARROW)
    assert upload(daemon, large(1), "m.zip").status == 200
    assert answer(daemon) == 3
    before = left_over(models_dir, cache_dir)
    broken = large(2, "raise RuntimeError('no weights')")
    reply = upload(daemon, broken, "m.zip", overwrite="true", description="broken")
    assert len(_refused_beside(daemon)) == 1
    assert reply.status == 400, reply
    assert "the model cannot be loaded: RuntimeError: no weights" in reply.json()["error"]
    assert answer(daemon) == 3
    assert daemon.model("m")["description"] != "broken"
    assert left_over(models_dir, cache_dir) == before
    assert daemon.stop() == 0
    assert answer(serve()) == 3


def test_a_version_that_cannot_be_loaded_does_not_replace_one_that_serves(
    serve: Serve, models_dir: Path, cache_dir: Path, once: bytes, tmp_path: Path
) -> None:
    daemon = serve(PYTHON)
    assert upload(daemon, once, "m.onnx").status == 200
    assert answer(daemon) == 3
    before = left_over(models_dir, cache_dir)
    broken = python_model(tmp_path / "broken", load="raise RuntimeError('no weights')")
    reply = upload(daemon, zipped_folder(broken), "m.zip", overwrite="true")
    assert reply.status == 400, reply
    assert "the model cannot be loaded" in reply.json()["error"]
    assert left_over(models_dir, cache_dir) == before
    assert answer(daemon) == 3
    assert daemon.model("m")["loads"] == 1


def test_two_uploads_of_one_id_do_not_both_count(
    serve: Serve, models_dir: Path, once: bytes
) -> None:
    daemon = serve()
    replies = asyncio.run(_at_once(daemon, once, 4))
    assert sorted(replies) == [200, 400, 400, 400]
    assert len(drafts(models_dir)) == 1


async def _at_once(daemon: Daemon, content: bytes, count: int) -> list[int]:
    sends = (asyncio.to_thread(upload, daemon, content, "m.onnx") for _ in range(count))
    return [reply.status for reply in await asyncio.gather(*sends)]


def test_more_uploads_than_there_may_be_at_once_are_told_to_wait(
    serve: Serve, models_dir: Path, once: bytes
) -> None:
    daemon = serve()
    whole = request_bytes("POST", TARGET, form(once, "m.onnx"), HEADERS)
    waiting = [daemon.connect() for _ in range(4)]
    for connection in waiting:
        connection.send(whole[:-5])
    eventually(lambda: len(drafts(models_dir)) == 4, "four uploads are under way")
    reply = upload(daemon, once, "m.onnx")
    assert (reply.status, reply.json()["code"]) == (503, "overloaded")
    assert "retry-after" in reply.headers
    for connection in waiting:
        connection.close()
    eventually(lambda: drafts(models_dir) == [], "they have left")
    assert upload(daemon, once, "m.onnx").status == 200


def test_an_upload_under_way_does_not_keep_the_daemon(
    serve: Serve, models_dir: Path, once: bytes
) -> None:
    daemon = serve(SNOOZE_DRAIN_TIMEOUT_SECS="1")
    whole = request_bytes("POST", TARGET, form(once, "m.onnx"), HEADERS)
    with daemon.connect() as connection:
        connection.send(whole[:-5])
        eventually(lambda: drafts(models_dir) != [], "the upload is under way")
        daemon.stop()
    assert drafts(models_dir) == []


def test_kill_9_at_any_moment_breaks_nothing(
    serve: Serve, models_dir: Path, once: bytes, twice: bytes
) -> None:
    (models_dir / "models.toml").write_text(PYTHON)
    (models_dir / "m.onnx").write_bytes(once)
    daemon = serve()
    started = time.monotonic()
    assert upload(daemon, twice, "m.zip", model_id="probe").status == 200
    took_s = time.monotonic() - started
    now = 3.0
    for number in range(8):
        version, name, value = ((twice, "m.zip", 6.0), (once, "m.onnx", 3.0))[number % 2]
        outcome: list[int] = []
        thread = threading.Thread(target=_upload, args=(daemon, version, name, outcome))
        thread.start()
        time.sleep(took_s * (0.2 + 0.15 * number))
        daemon.tree()
        daemon.send_signal(SIGKILL)
        daemon.wait()
        thread.join()
        daemon = serve()
        after = answer(daemon)
        assert after in (now, value)
        if outcome == [200]:
            assert after == value
        now = after
        uploads = {"probe", "m"} if (models_dir / "m").is_symlink() else {"probe"}
        eventually(lambda: len(drafts(models_dir)) == len(uploads), "drafts are swept")  # noqa: B023
        assert daemon.model("probe")["format"] == "python"


def _upload(daemon: Daemon, content: bytes, name: str, outcome: list[int]) -> None:
    with suppress(OSError):  # it was killed
        outcome.append(upload(daemon, content, name, overwrite="true", description="x").status)
