"""A running daemon, as the control commands reach it.

The standard library's client, because these commands must answer at once: another HTTP client would
double their start-up time, and they make one request each.
"""

import contextlib
import difflib
import http.client
import json
import socket
import ssl
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote, unquote, urlsplit

import click

from snoozeml.cli.tls import ClientTls

if TYPE_CHECKING:
    from snoozeml.cli.forms import Form

_Shape = TypeVar("_Shape")
_NOT_OURS: Final = "Is this a SnoozeML daemon? One with TLS is reached by https://"


class EndpointError(click.ClickException):
    """The daemon could not be asked, or it refused; the message is one complete sentence."""


class _UnknownModel(EndpointError):
    """The daemon has no model of this name."""


class Endpoint:
    """One daemon by its URL.

    Args:
        url: `http://host:port` or `https://host:port`, optionally with a path in front of the API;
            without a scheme, http is meant.
        api_key: sent as a bearer token; None sends no credentials.
        timeout_s: the longest silence to sit through while connecting or waiting for the answer.
        tls: of no account to http.

    Attributes:
        models_dir: where the daemon looks for models; None until an answer has told.

    Raises:
        ValueError: the URL cannot be a daemon's; the message says what one looks like.
        click.BadParameter: a file of `tls` does not hold what it should.
    """

    def __init__(self, url: str, api_key: str | None, timeout_s: float, tls: ClientTls) -> None:
        if "://" not in url:
            url = f"http://{url}"
        parts = urlsplit(url)
        extras = parts.username or parts.query or parts.fragment
        if parts.scheme not in ("http", "https") or not parts.hostname or extras:
            raise ValueError(f"{url!r} is no endpoint; one looks like http://127.0.0.1:8080")
        in_front, inside, _ = f"{parts.path}/".partition("/v1/")
        if inside:
            endpoint = f"{parts.scheme}://{parts.netloc}{in_front}"
            raise ValueError(f"{url!r} leads into the API, not to it; the endpoint is {endpoint}")
        self.url: Final = url.rstrip("/")
        self._host: Final = parts.hostname
        self._prefix: Final = quote(parts.path.rstrip("/"), safe="/%")
        self._timeout_s: Final = timeout_s
        self._tls: Final = tls if parts.scheme == "https" else None
        self._connection: Final = self._unconnected(parts.hostname, parts.port)
        self.models_dir: str | None = None
        self._headers: Final = {"Accept": "application/json"}
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"

    def _unconnected(self, host: str, port: int | None) -> http.client.HTTPConnection:
        try:
            if self._tls is None:
                return http.client.HTTPConnection(host, port, timeout=self._timeout_s)
            context = self._tls.context()
            return http.client.HTTPSConnection(host, port, timeout=self._timeout_s, context=context)
        except http.client.InvalidURL as error:
            raise ValueError(str(error)) from error

    def models(self) -> list[dict[str, Any]]:
        return self._expect(list, self._ask("GET", "v1", "models"))

    def model(self, model_id: str) -> dict[str, Any]:
        return self._ask_about(model_id, "GET")

    def act(self, model_id: str, action: str) -> dict[str, Any]:
        """Load, unload, pin or unpin a model; returns what the daemon says became of it."""
        return self._ask_about(model_id, "POST", action)

    def refresh(self) -> dict[str, Any]:
        """Have the models folder scanned again.

        Returns:
            `models`, those that there are now; and what has changed, where the daemon tells.
        """
        answer = self._expect(dict, self._ask("POST", "v1", "models", "refresh"))
        self._expect(list, answer.get("models"))
        return answer

    def upload(self, form: "Form") -> dict[str, Any]:
        """Send a model; returns what has become of it."""
        return self._expect(dict, self._ask("POST", "v1", "models", "upload", form=form))

    def _ask_about(self, model_id: str, method: str, *action: str) -> dict[str, Any]:
        try:
            return self._expect(dict, self._ask(method, "v1", "models", model_id, *action))
        except _UnknownModel as error:
            told = "did you mean" in error.message
            instead = "" if told else f"; {self._instead_of(model_id)}"
            raise EndpointError(f"{error.message}{instead}") from None

    def _instead_of(self, model_id: str) -> str:
        """Where to find the right name of a model."""
        try:
            known = [str(model["id"]) for model in self.models()]
        except (EndpointError, LookupError, TypeError):
            known = []  # what went wrong is told already; this would only have made it easier
        near = difflib.get_close_matches(model_id, known)
        return f"did you mean {' or '.join(near)}?" if near else "`snooze status` lists the models"

    def _ask(self, method: str, *segments: str, form: "Form | None" = None) -> Any:
        path = "".join(f"/{_quoted(segment)}" for segment in segments)
        try:
            self._send(method, self._prefix + path, form)
            response = self._connection.getresponse()
            body = response.read()
            if (folder := response.headers.get("X-Snooze-Models-Dir")) is not None:
                self.models_dir = unquote(folder)
        except (OSError, UnicodeError, http.client.HTTPException) as error:
            raise EndpointError(self._why_silent(error)) from error
        finally:
            self._connection.close()
        try:
            answer = json.loads(body)
        except ValueError:
            raise self._stranger(f"{response.status} {response.reason}, not in JSON") from None
        if response.status != http.client.OK:
            raise self._refusal(response, answer)
        return answer

    def _send(self, method: str, path: str, form: "Form | None") -> None:
        if form is None:
            self._connection.request(method, path, headers=self._headers)
            return
        headers = self._headers | {"Content-Type": form.content_type}
        if form.length_bytes is not None:
            headers["Content-Length"] = str(form.length_bytes)
        # A daemon that refuses a form need not take all of it: its answer says why.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._connection.request(method, path, form.pieces, headers)

    def _expect(self, shape: type[_Shape], answer: Any) -> _Shape:
        if not isinstance(answer, shape):
            raise self._stranger(f"a JSON {type(answer).__name__}, not a {shape.__name__}")
        return answer

    def _stranger(self, answered: str) -> EndpointError:
        return EndpointError(f"{self.url} answered {answered}. Is this a SnoozeML daemon?")

    def _why_silent(self, error: Exception) -> str:
        match error:
            case ConnectionRefusedError():
                return f"cannot reach {self.url}: connection refused. Is `snooze serve` running?"
            case socket.gaierror() | UnicodeError():
                return f"cannot reach {self.url}: no address is known for {self._host!r}"
            case TimeoutError():
                return f"no answer from {self.url} within {self._timeout_s:g} s (--timeout)"
            case http.client.HTTPException() | ConnectionError() | ssl.SSLEOFError():
                why = _NOT_OURS if self._tls is None else self._tls.why_broken_off()
                return f"{self.url} broke off without an HTTP answer. {why}"
            case ssl.SSLError() if self._tls is not None:
                return self._tls.why_failed(self.url, error)
            case _:
                return f"cannot reach {self.url}: {getattr(error, 'strerror', None) or error}"

    def _refusal(self, response: http.client.HTTPResponse, answer: Any) -> EndpointError:
        if not isinstance(answer, dict) or "error" not in answer:
            return self._stranger(f"{response.status} {response.reason} without a reason")
        code = answer.get("code", response.status)
        why = f"{answer['error']} ({code})"
        if code == "model_not_found":
            return _UnknownModel(why)
        if code == "unauthenticated":
            return EndpointError(f"{why}; --api-key or SNOOZE_API_KEY gives a key")
        if (retry_after := response.headers.get("Retry-After")) is not None:
            # Time alone seldom mends a model; but to one that was mended it must be given.
            when = "it is not tried again for" if code == "model_failed" else "try again in"
            why += f"; {when} {retry_after} s"
        return EndpointError(why)


def _quoted(segment: str) -> str:
    """One path segment; bytes of the command line that are not UTF-8 travel as they are."""
    return quote(segment.encode("utf-8", "surrogateescape"), safe="")
