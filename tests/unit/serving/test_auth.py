"""The authoriser, without any transport."""

import hashlib
import json
import statistics
import time
from collections.abc import Callable
from random import Random
from typing import Any

import jwt
import pytest
from msgspec import structs

from snoozeml.config.auth_schema import ApiKey, AuthConfig, JwtRules
from snoozeml.core.roles import Role
from snoozeml.core.secret import Secret
from snoozeml.errors import PermissionDenied, RateLimited, Unauthenticated
from snoozeml.serving.auth import Action, Authoriser, Credentials
from snoozeml.serving.auth.keys import KeyRing
from snoozeml.serving.auth.tokens import TokenVerifier
from snoozeml.telemetry.metrics import AUTH_FAILURES

SECRET = "0123456789abcdef" * 4
RULES = JwtRules(
    secret=Secret(SECRET), algorithm="HS256", issuer=None, audience=None, leeway_s=60.0
)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def api_key(text: str, role: Role = Role.INFERENCE, **more: Any) -> ApiKey:
    return ApiKey(name=text, digest=hashlib.sha256(text.encode()).digest(), role=role, **more)


def bearer(secret: str) -> Credentials:
    return [(b"authorization", f"Bearer {secret}".encode())]


def authoriser(
    *keys: ApiKey, clock: Callable[[], float] = time.monotonic, **more: Any
) -> Authoriser:
    return Authoriser(AuthConfig(enabled=True, api_keys=keys, **more), clock)


def token(**claims: Any) -> str:
    return jwt.encode({"exp": time.time() + 3600, "role": "admin"} | claims, SECRET)


@pytest.mark.parametrize("action", Action)
def test_while_it_is_off_everybody_may_do_everything(action: Action) -> None:
    everybody = Authoriser(AuthConfig())
    assert everybody.check([], action, "any").role is Role.ADMIN
    assert everybody.check(bearer("whatever"), action).may_use("any")


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize(
    ("action", "needs"),
    [(Action.READONLY, 1), (Action.INFERENCE, 2), (Action.ADMIN, 3), (Action.METRICS, 3)],
)
def test_a_role_may_do_what_those_below_it_may(role: Role, action: Action, needs: int) -> None:
    guard = authoriser(api_key("k", role), protect_metrics=True)
    if role >= needs:
        assert guard.check(bearer("k"), action).role is role
    else:
        with pytest.raises(PermissionDenied, match=rf"has the role {role.name.lower()}"):
            guard.check(bearer("k"), action)


def test_metrics_are_public_unless_they_are_protected() -> None:
    authoriser(api_key("k")).check([], Action.METRICS)
    with pytest.raises(Unauthenticated):
        authoriser(api_key("k"), protect_metrics=True).check([], Action.METRICS)


def test_public_metrics_show_models_only_to_those_who_may_see_them() -> None:
    clock = Clock()
    limited = api_key("k", Role.READONLY, models=("bge-*",), requests_per_second=1.0, burst=1)
    guard = authoriser(limited, clock=clock)
    for stranger in ([], bearer("wrong")):
        assert not guard.check(stranger, Action.METRICS).may_use("bge-small")
    known = guard.check(bearer("k"), Action.METRICS)
    assert known.may_use("bge-small")
    assert not known.may_use("iris")
    with pytest.raises(RateLimited):
        guard.check(bearer("k"), Action.METRICS)


def test_a_key_for_some_models_is_for_no_others_and_not_for_the_daemon() -> None:
    guard = authoriser(api_key("k", Role.ADMIN, models=("bge-*", "iris")))
    for model_id in ("bge-small", "bge-", "iris"):
        assert guard.check(bearer("k"), Action.ADMIN, model_id).may_use(model_id)
    for model_id in ("xbge-small", "iris2", "IRIS", "bge", "iris\n"):
        with pytest.raises(PermissionDenied, match="is not for the model"):
            guard.check(bearer("k"), Action.READONLY, model_id)
    with pytest.raises(PermissionDenied, match="for some models only"):
        guard.check(bearer("k"), Action.ADMIN)
    assert not guard.check(bearer("k"), Action.READONLY).may_use("other")


def test_a_key_has_its_burst_and_then_its_rate() -> None:
    clock = Clock()
    guard = authoriser(api_key("k", requests_per_second=2.0, burst=3), api_key("free"), clock=clock)

    def ask(times: int, key: str = "k") -> None:
        for _ in range(times):
            guard.check(bearer(key), Action.INFERENCE, "m")

    ask(3)
    for _ in range(2):
        with pytest.raises(RateLimited) as refusal:
            ask(1)
        assert refusal.value.retry_after_s == pytest.approx(0.5)
    clock.now += 0.5
    ask(1)
    with pytest.raises(RateLimited):
        ask(1)
    clock.now += 3600
    ask(3)
    with pytest.raises(RateLimited):
        ask(1)
    ask(100, "free")


def test_what_is_refused_for_another_reason_takes_nothing_from_the_rate() -> None:
    guard = authoriser(api_key("k", Role.READONLY, requests_per_second=1.0, burst=1), clock=Clock())
    for _ in range(3):
        with pytest.raises(PermissionDenied):
            guard.check(bearer("k"), Action.ADMIN, "m")
    guard.check(bearer("k"), Action.READONLY, "m")


@pytest.mark.parametrize(
    ("credentials", "action", "model_id", "reason"),
    [
        ([], Action.READONLY, None, "missing"),
        ([(b"x-api-key", b"")], Action.READONLY, None, "missing"),
        ([(b"authorization", b"Basic k")], Action.READONLY, None, "malformed"),
        ([*bearer("k"), (b"x-api-key", b"other")], Action.READONLY, None, "malformed"),
        (bearer("wrong"), Action.READONLY, None, "invalid"),
        (bearer("a.b.c"), Action.READONLY, None, "invalid"),
        (bearer(token(nbf=time.time() + 3600)), Action.READONLY, None, "invalid"),
        (bearer(token(exp=1)), Action.READONLY, None, "expired"),
        (bearer(token(role="cook")), Action.READONLY, None, "role"),
        (bearer("k"), Action.ADMIN, "bge", "role"),
        (bearer("k"), Action.METRICS, None, "role"),
        (bearer("k"), Action.INFERENCE, "iris", "model"),
        (bearer("limited"), Action.ADMIN, None, "model"),
        (bearer("often"), Action.READONLY, None, "rate"),
    ],
)
def test_whoever_is_refused_is_counted_by_the_reason(
    credentials: Credentials, action: Action, model_id: str | None, reason: str
) -> None:
    guard = authoriser(
        api_key("k", models=("bge",)),
        api_key("limited", Role.ADMIN, models=("bge",)),
        api_key("often", requests_per_second=1.0, burst=1),
        clock=Clock(),
        protect_metrics=True,
        jwt=RULES,
    )
    guard.check(bearer("often"), Action.READONLY)
    nobody = dict.fromkeys(AUTH_FAILURES, 0)
    assert guard.failures == nobody
    with pytest.raises((Unauthenticated, PermissionDenied, RateLimited)):
        guard.check(credentials, action, model_id)
    assert guard.failures == nobody | {reason: 1}
    guard.apply(AuthConfig())  # counts of the daemon never fall
    assert guard.failures == nobody | {reason: 1}


def test_whoever_looks_at_public_metrics_has_not_failed() -> None:
    guard = authoriser(api_key("k"))
    for credentials in ([], bearer("wrong"), bearer("k")):
        guard.check(credentials, Action.METRICS)
    assert set(guard.failures.values()) == {0}


def test_a_new_configuration_counts_at_once() -> None:
    guard = authoriser(api_key("old"), jwt=RULES)
    good = token()
    guard.check(bearer(good), Action.ADMIN)
    guard.apply(AuthConfig(enabled=True, api_keys=(api_key("new"),)))
    guard.check(bearer("new"), Action.INFERENCE)
    for gone in ("old", good):
        with pytest.raises(Unauthenticated):
            guard.check(bearer(gone), Action.INFERENCE)


def test_a_remembered_token_ends_when_it_expires() -> None:
    clock = Clock()
    clock.now = time.time()
    verifier = TokenVerifier(RULES, clock)
    good = token(exp=clock.now - 30, sub="somebody").encode()
    assert verifier.verify(good) is verifier.verify(good)
    assert verifier.verify(good).name == "somebody"
    clock.now += 29
    verifier.verify(good)
    clock.now += 2
    # PyJWT has a clock of its own, by which the token is still good: it is asked again.
    assert verifier.verify(good) is not verifier.verify(good)


@pytest.mark.parametrize("absent", ["exp", "iss", "aud"])
def test_a_claim_that_a_good_token_lacks_is_named_to_nobody_else(absent: str) -> None:
    claims = {"exp": time.time() + 60, "iss": "us", "aud": "here", "role": "admin"}
    del claims[absent]
    verifier = TokenVerifier(structs.replace(RULES, issuer="us", audience="here"))
    with pytest.raises(Unauthenticated, match=f"the token has no {absent}"):
        verifier.verify(jwt.encode(claims, SECRET).encode())
    with pytest.raises(Unauthenticated, match="not valid"):
        verifier.verify(jwt.encode(claims, SECRET[::-1]).encode())


def test_an_expired_token_is_not_remembered_past_its_end() -> None:
    verifier = TokenVerifier(RULES)
    with pytest.raises(Unauthenticated, match="has expired"):
        verifier.verify(token(exp=time.time() - 61).encode())


def test_remembering_tokens_has_an_end() -> None:
    verifier = TokenVerifier(RULES)
    for number in range(1100):
        verifier.verify(token(sub=str(number)).encode())
    assert len(verifier._remembered) == 1024


@pytest.mark.parametrize("claim", [float("inf"), float("nan"), 10**400, "soon", [], {}, True, -1])
@pytest.mark.parametrize("name", ["exp", "nbf", "iat"])
def test_odd_times_are_no_way_to_break_it(name: str, claim: Any) -> None:
    payload = {"exp": time.time() + 60, "role": "admin", name: claim}
    odd = jwt.PyJWS().encode(json.dumps(payload).encode(), SECRET, "HS256")
    verifier = TokenVerifier(RULES)
    try:
        verifier.verify(odd.encode())
    except Unauthenticated:
        return
    verifier.verify(odd.encode())


# Time tells nothing


def _chance_of_being_slower(run: Callable[[bytes], object], one: bytes, other: bytes) -> float:
    """How often the one argument takes longer than the other: one half, if they are alike.

    Both are run many times, in random order, and every pair of times is compared (the statistic of
    Mann and Whitney). The noise of the machine falls on both; where in memory an argument lies
    makes a difference too, so each run gets a copy of its own.
    """
    runs, dice = 20_000, Random(0)
    arguments = [bytes(bytearray(one)) for _ in range(runs)]
    arguments += [bytes(bytearray(other)) for _ in range(runs)]
    order = list(range(2 * runs))
    dice.shuffle(order)
    times: list[tuple[int, bool]] = []
    for number in order:
        argument = arguments[number]
        start = time.perf_counter_ns()
        run(argument)
        times.append((time.perf_counter_ns() - start, number < runs))
    ranks: dict[int, list[int]] = {}
    for rank, (took, _) in enumerate(sorted(times)):
        ranks.setdefault(took, []).append(rank)
    mean_rank = {took: statistics.fmean(places) for took, places in ranks.items()}
    rank_sum = sum(mean_rank[took] for took, is_one in times if is_one)
    return (rank_sum - runs * (runs - 1) / 2) / runs**2


ALIKE = pytest.approx(0.5, abs=0.03)  # the statistic's own spread is 0.003 with so many runs
KEY = "k" * 64


def test_where_a_guess_is_wrong_does_not_show_in_the_time() -> None:
    ring = KeyRing([api_key(KEY)])
    first, last = b"x" + KEY[1:].encode(), KEY[:-1].encode() + b"x"
    assert _chance_of_being_slower(ring.find, first, last) == ALIKE


def test_which_of_many_keys_a_guess_is_near_does_not_show_in_the_time() -> None:
    ring = KeyRing([api_key(f"key {number:03}") for number in range(50)])
    first, last = b"key 000x", b"key 049x"
    assert _chance_of_being_slower(ring.find, first, last) == ALIKE


def test_which_of_many_keys_is_the_good_one_does_not_show_in_the_time() -> None:
    ring = KeyRing([api_key(f"key {number:03}") for number in range(50)])
    chance = _chance_of_being_slower(ring.find, b"key 000", b"key 049")
    # Nanoseconds of the processor's own show here; leaving early would give less than 0.01.
    assert chance == pytest.approx(0.5, abs=0.15)


def test_a_comparison_that_leaves_early_would_have_been_noticed() -> None:
    key = KEY.encode()

    def leaky(guess: bytes) -> bool:
        return all(a == b for a, b in zip(guess, key, strict=True))

    assert _chance_of_being_slower(leaky, key[:-1] + b"x", b"x" + key[1:]) > 0.9
