"""What SnoozeML costs, measured as ratios within one run. `python -m benchmarks` runs it all.

The daemon is driven by the harness of the end-to-end tests, whose folder is put on the path here.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
