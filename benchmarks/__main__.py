"""`python -m benchmarks [NAME ...]`: measure, show, and exit 1 if a bound is broken."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks import (
    batching,
    cold_start,
    encoders,
    figures,
    footprint,
    grpc,
    politeness,
    replicas,
    residency,
    slow_clients,
    throughput,
    tiers,
    trees,
    v2,
    wrk,
)

_BENCHMARKS: Final[dict[str, Callable[[], list[figures.Figure]]]] = {
    "throughput": throughput.measure,
    "batching": batching.measure,
    "cold-start": cold_start.measure,
    "encoders": encoders.measure,
    "footprint": footprint.measure,
    "grpc": grpc.measure,
    "tiers": tiers.measure,
    "residency": residency.measure,
    "politeness": politeness.measure,
    "replicas": replicas.measure,
    "slow-clients": slow_clients.measure,
    "trees": trees.measure,
    "v2": v2.measure,
}
_RESULTS: Final = Path(__file__).parent / "results" / "latest.json"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"one of {', '.join(_BENCHMARKS)}; default: all"
    )
    names = parser.parse_args().names or list(_BENCHMARKS)
    if unknown := set(names) - _BENCHMARKS.keys():
        parser.error(f"there is no benchmark {', '.join(unknown)}; choose {', '.join(_BENCHMARKS)}")
    wrk.ensure_wrk()
    found: dict[str, list[figures.Figure]] = {}
    for name in names:
        found[name] = _BENCHMARKS[name]()
        figures.show(name, found[name])
    figures.save(_RESULTS, found)
    broken = [figure.what for measured in found.values() for figure in measured if figure.broken]
    for what in broken:
        print(f"bound broken: {what}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (wrk.WrkMissing, trees.XgboostMissing) as error:
        sys.exit(str(error))
