"""Plans of safetensors checkpoints."""
