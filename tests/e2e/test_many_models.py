"""A thousand models are no burden while they sleep, whoever has been awake before."""

from pathlib import Path
from statistics import median
from typing import Final

import pytest

from e2e import multitude, processes
from e2e.conftest import Serve
from e2e.eventually import eventually
from e2e.footprint import cpu_share, is_alone

GROWTH_LIMIT_BYTES: Final = 20 * 10**6
LISTING_LIMIT_S: Final = 0.05
SCRAPE_LIMIT_S: Final = 0.05
CPU_LIMIT: Final = 0.001
CPU_OVER_S: Final = 10.0


@pytest.mark.timeout(120)
def test_a_thousand_models(serve: Serve, models_dir: Path) -> None:
    daemon = serve(multitude.SETTINGS)
    empty_bytes = processes.resident_bytes(daemon.pid)
    assert daemon.stop() == 0
    multitude.register(models_dir)

    daemon = serve(multitude.SETTINGS)
    multitude.use_some(daemon)
    tree = daemon.tree()
    assert len(tree) == 2 + multitude.PLACES, "daemon, spare, and as many workers as may be"
    assert median(multitude.listing_s(daemon)) <= LISTING_LIMIT_S
    assert median(multitude.scrape_s(daemon)) <= SCRAPE_LIMIT_S
    eventually(lambda: cpu_share(tree, 0.5) < CPU_LIMIT, "the last answer's work is done")
    assert cpu_share(tree, CPU_OVER_S) <= CPU_LIMIT

    multitude.unload_all(daemon)
    eventually(lambda: is_alone(daemon), "everything sleeps, and the spare has left")
    assert processes.resident_bytes(daemon.pid) - empty_bytes <= GROWTH_LIMIT_BYTES
