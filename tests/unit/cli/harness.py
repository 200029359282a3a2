"""The command line under test, and a daemon of canned answers for it to talk to."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from click.testing import CliRunner, Result

from snoozeml.cli.app import snooze as command_line


def snooze(*arguments: str, **environment: str) -> Result:
    """Run `snooze ARGUMENTS` in this process, without settings from outside."""
    ours = ("ENDPOINT", "API_KEY", "CA_CERT", "CLIENT_CERT", "CLIENT_KEY")
    untouched = {f"SNOOZE_{name}": None for name in ours}
    runner = CliRunner(env={**untouched, **environment})
    return runner.invoke(command_line, arguments, prog_name="snooze", catch_exceptions=False)


class FakeDaemon(ThreadingHTTPServer):
    """Answers what a test laid in `answers`, and keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, tuple[int, bytes, dict[str, str]]] = {}
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def will_answer(
        self, request: str, answer: Any, status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        """Answer `request` ("GET /path") with this value as JSON, or with these bytes as such."""
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.answers[request] = (status, body, headers or {})


class _Handler(BaseHTTPRequestHandler):
    server: FakeDaemon

    def do_GET(self) -> None:
        request = f"{self.command} {self.path}"
        self.server.asked.append(request)
        self.server.headers.append(dict(self.headers))
        status, body, headers = self.server.answers[request]
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815 (http.server looks the method up by this name)

    def log_message(self, *_args: object) -> None:
        """Say nothing: a test's output is its own."""
