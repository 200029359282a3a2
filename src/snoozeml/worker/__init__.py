"""The process that holds one model: reads, batches, runs, answers."""

import os

# Whoever launches a worker sets these; they are set again because whatever imports numpy or
# onnxruntime for a worker comes past here first, and both read them while they are imported.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # its official builds report to their vendor by default
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # numpy must start no threads: the spare is forked
