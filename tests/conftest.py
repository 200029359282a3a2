"""What holds for every test."""

import os

# Before anything imports onnxruntime: its official builds report to their vendor by default.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
