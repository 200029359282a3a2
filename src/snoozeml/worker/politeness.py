"""Work that gives way to whoever else needs the processor."""

import os
import sys
import threading
from collections.abc import Callable
from typing import Final

SOMEBODY_WAITS: Final = 7
"""The least niceness with which a neighbour on the same core is slowed by less than a quarter.

The kernel weighs niceness 7 with 215 and niceness 0 with 1024: the neighbour keeps 83 %. With more,
a model would wake later than it must while others are busy.
"""

NOBODY_WAITS: Final = 10
"""Weighed with 110: the neighbour keeps 90 %."""


def run_politely(work: Callable[[], object], niceness: int) -> None:
    """Run something at a lower priority, and wait for it; raises what it raises.

    On Linux niceness belongs to a thread, new threads inherit it, and to lower it again takes
    privileges. So the work has a thread of its own, and must not start any that will serve.
    """
    if sys.platform != "linux":  # elsewhere niceness belongs to the whole process, for good
        work()
        return
    raised: list[BaseException] = []

    def run() -> None:
        try:
            os.nice(niceness)
            work()
        except BaseException as error:  # it is raised again where somebody can handle it
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
