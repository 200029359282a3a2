"""What an operator is told of how open the daemon is."""

from pathlib import Path

import pytest

from snoozeml.config.auth_schema import AuthConfig
from snoozeml.config.schema import Configuration, ServerConfig
from snoozeml.serving.auth.exposure import concerns

OFF, ON = AuthConfig(), AuthConfig(enabled=True)


def told(host: str, auth: AuthConfig, tls: Path | None = None) -> str:
    server = ServerConfig(
        host=host, models_dir=Path("/m"), cache_dir=Path("/c"), tls_cert=tls, tls_key=tls
    )
    return "; ".join(concerns(Configuration(server=server, models=(), auth=auth)))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost", "::1%lo"])
def test_at_home_nothing_is_told(host: str) -> None:
    assert told(host, OFF) == ""


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "snooze.test"])
def test_elsewhere_open_doors_and_open_letters_are(host: str) -> None:
    assert f"whoever can reach {host} may" in told(host, OFF)
    assert "set SNOOZE_API_KEY" in told(host, OFF)
    assert "travel" in told(host, ON)
    assert "unencrypted" in told(host, ON)
    assert told(host, ON, Path("/cert.pem")) == ""


def test_what_the_configuration_warns_of_comes_first() -> None:
    careless = AuthConfig(enabled=True, warnings=("a key lies about",))
    assert told("127.0.0.1", careless) == "a key lies about"
