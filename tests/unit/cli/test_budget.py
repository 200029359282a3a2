"""What the command line may import, and how long it may take to start.

The control commands must answer at once, and `snooze serve` becomes the daemon: whatever it imports
to read its flags stays in memory for as long as the daemon runs.
"""

import json
import resource
import subprocess
import sys

from unit.cli.harness import FakeDaemon

LONGEST_START_S = 0.2
MOST_MODULES = 240  # 216 with the releases of constraints.txt; each costs a control command time

PRINT_MODULES = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))
from snoozeml.cli import main
main()
"""


def modules_of(*arguments: str) -> set[str]:
    """The modules loaded when `snooze ARGUMENTS` ends."""
    command = [sys.executable, "-c", PRINT_MODULES, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return set(json.loads(done.stderr.splitlines()[-1]))


def ours(modules: set[str]) -> set[str]:
    return {name for name in modules if name.startswith("snoozeml.")}


def test_a_control_command_starts_light(daemon: FakeDaemon) -> None:
    daemon.will_answer("GET /v1/models", [{"id": "iris", "state": "idle"}])
    modules = modules_of("status", "--endpoint", daemon.url)
    assert "snoozeml.cli.tables" in modules
    assert {name for name in ours(modules) if not name.startswith("snoozeml.cli")} == set()
    assert modules.isdisjoint({"asyncio", "msgspec", "numpy", "onnxruntime", "uvicorn"})
    assert len(modules) < MOST_MODULES


def test_reading_the_flags_of_serve_loads_nothing_for_the_other_commands() -> None:
    modules = modules_of("serve", "--help")
    assert "snoozeml.cli.serve" in modules
    unwanted = {"rich", "http.client", "snoozeml.cli.endpoint", "snoozeml.cli.tables"}
    assert modules.isdisjoint(unwanted)


def test_a_control_command_is_quick(daemon: FakeDaemon) -> None:
    daemon.will_answer("GET /v1/models", [{"id": "iris", "state": "idle"}])
    command = [sys.executable, "-c", "from snoozeml.cli import main; main()", "status"]
    took_s = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*command, "--endpoint", daemon.url], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        # Processor time: what it takes on a machine that has nothing else to do.
        took_s.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(took_s) < LONGEST_START_S
