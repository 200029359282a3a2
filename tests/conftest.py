"""What holds for every test."""

import os

from hypothesis import settings

# Before anything imports onnxruntime: its official builds report to their vendor by default.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

# A machine that is busy with something else makes any example slow, and no test wrong.
settings.register_profile("snoozeml", deadline=None)
settings.load_profile("snoozeml")
