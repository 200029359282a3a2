"""How many requests a key may make."""


class TokenBucket:
    """Lets `burst` requests through at once, and `per_second` in the long run."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second = per_second
        self._burst = burst
        self._tokens = float(burst)
        self._filled_at: float | None = None

    def take(self, now: float) -> float:
        """Let one request through, or say when to come back.

        Args:
            now: seconds of a clock that never goes back.

        Returns:
            0 if it may pass; otherwise after how many seconds the next one may.
        """
        if self._filled_at is not None:
            gained = (now - self._filled_at) * self._per_second
            self._tokens = min(float(self._burst), self._tokens + gained)
        self._filled_at = now
        if self._tokens >= 1:
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) / self._per_second
