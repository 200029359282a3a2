"""Every failure that SnoozeML can name.

A failure is a code, a message that is safe to show to a client, and whether trying again can help.
Each transport keeps one table from code to its own status; nothing here knows a transport.

    SnoozeError
    ├── InvalidInput               names, datatypes, JSON
    │   └── ShapeMismatch          shapes
    ├── Unauthenticated            no credentials, or wrong ones
    ├── PermissionDenied           the role, or the models of this key, do not reach that far
    ├── RateLimited                more requests than this key may make
    ├── ModelNotFound
    ├── NotSupported               a part of a protocol that is not served
    ├── MethodNotAllowed, NotFound, PayloadTooLarge, HeadTooLarge, UnsupportedMediaType
    ├── RequestTimeout             the request was too slow in coming
    ├── Overloaded                 the queue is full
    ├── ModelLoading               the caller did not want to wait
    ├── OutOfMemory
    ├── WorkerCrashed              the worker died while it held the request
    ├── ModelFailed                the model cannot be loaded
    ├── ShuttingDown
    ├── DeadlineExceeded
    ├── Cancelled                  the caller left before the answer
    ├── InferenceFailed            the model raised
    └── Internal                   our bug
"""

from typing import ClassVar, Final, Self


def printable(text: str) -> str:
    """The text with all that could command a terminal spelt out, as `\\x1b`; lines stay lines."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode()
        for char in text
    )


_LONGEST_MESSAGE: Final = 4096
"""Characters. Messages quote what clients send, of which nobody wants to read megabytes."""

_CUT: Final = " … "


def shortened(text: str, longest: int = _LONGEST_MESSAGE) -> str:
    """The beginning of what is too long, and its end, which says what would be right."""
    if len(text) <= longest:
        return text
    half = (longest - len(_CUT)) // 2
    return text[:half] + _CUT + text[-half:]


class SnoozeError(Exception):
    """A failure with a name.

    Args:
        message: one sentence that says what was wrong and what would be right; safe to show,
            printable whatever is quoted in it, and cut in its middle where it is very long.
        retry_after_s: when trying again is worth it, in seconds from now; None when unknown.
    """

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        self.message = shortened(printable(shortened(message)))
        super().__init__(self.message)
        self.retry_after_s = retry_after_s

    @classmethod
    def restated(cls, error: "SnoozeError", *, retry_after_s: float | None = None) -> Self:
        """The same failure again, word for word, with another advice on when to retry."""
        again = cls.__new__(cls)
        SnoozeError.__init__(again, error.message, retry_after_s=retry_after_s)
        return again

    def again(self) -> Self:
        """An equal failure to raise, where this one is kept.

        One that is raised holds on to every frame that it passes, and to all that these hold.
        """
        again = type(self).__new__(type(self), *self.args)
        again.__dict__.update(self.__dict__)
        return again


class InvalidInput(SnoozeError):
    code = "invalid_input"


class ShapeMismatch(InvalidInput):
    code = "shape_mismatch"

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(f"shape mismatch: {message}", retry_after_s=retry_after_s)


class Unauthenticated(SnoozeError):
    code = "unauthenticated"


class PermissionDenied(SnoozeError):
    code = "permission_denied"


class RateLimited(SnoozeError):
    code = "rate_limited"
    retryable = True


class ModelNotFound(SnoozeError):
    code = "model_not_found"

    @classmethod
    def named(cls, model_id: str, meant: str | None = None) -> "ModelNotFound":
        """No model has this id.

        Args:
            meant: the one that may have been meant, if the caller may know of it.
        """
        return cls(f"Model not found: {model_id}{f'; did you mean {meant}?' if meant else ''}")


class NotFound(SnoozeError):
    code = "not_found"


class NotSupported(SnoozeError):
    code = "not_supported"


class MethodNotAllowed(SnoozeError):
    code = "method_not_allowed"


class PayloadTooLarge(SnoozeError):
    code = "payload_too_large"


class HeadTooLarge(SnoozeError):
    code = "head_too_large"


class RequestTimeout(SnoozeError):
    code = "request_timeout"
    retryable = True


class UnsupportedMediaType(SnoozeError):
    code = "unsupported_media_type"


class Overloaded(SnoozeError):
    code = "overloaded"
    retryable = True


class ModelLoading(SnoozeError):
    code = "model_loading"
    retryable = True


class OutOfMemory(SnoozeError):
    code = "out_of_memory"
    retryable = True


class WorkerCrashed(SnoozeError):
    code = "worker_crashed"
    retryable = True


class ModelFailed(SnoozeError):
    code = "model_failed"
    retryable = True


class UnsupportedArchitecture(SnoozeError):
    """A checkpoint's architecture is none of those that we can build a graph of."""

    code = "unsupported_architecture"


class ShuttingDown(SnoozeError):
    code = "shutting_down"
    retryable = True


class DeadlineExceeded(SnoozeError):
    code = "deadline_exceeded"
    retryable = True


class Cancelled(SnoozeError):
    code = "cancelled"


class InferenceFailed(SnoozeError):
    code = "inference_failed"


class Internal(SnoozeError):
    code = "internal"


def _with_subclasses(cls: type[SnoozeError]) -> list[type[SnoozeError]]:
    found = [cls]
    for sub in cls.__subclasses__():
        found += _with_subclasses(sub)
    return found


BY_CODE: Final[dict[str, type[SnoozeError]]] = {
    cls.code: cls for cls in _with_subclasses(SnoozeError) if cls is not SnoozeError
}
"""Every failure by its code; a transport's table must cover exactly these keys."""


def from_code(code: str, message: str) -> SnoozeError:
    """Rebuild a failure that crossed a process boundary as its code and message.

    A code that this version does not know becomes `internal`, with the message kept.
    """
    # The message is complete already: a class that puts words before it must not do so twice.
    return BY_CODE.get(code, Internal).restated(SnoozeError(message))
