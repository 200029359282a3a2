"""Linear layers in 8-bit integers: about twice the speed on a CPU, for a little accuracy."""
