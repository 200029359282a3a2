"""The one road to a model: `infer()` and the control plane."""
