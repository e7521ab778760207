"""The settings of ``DistCron``: given, from the environment, or refused with a word on what to do."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import redis

from dramatiq_distcron import ConfigurationError, DistCron
from dramatiq_distcron.config import DistCronOptions, Settings, checked_lease_ttl
from dramatiq_distcron.errors import ScheduleError
from dramatiq_distcron.policies import Policy, PolicyOptions

VARIABLES = (
    "DISTCRON_REDIS_URL",
    "DISTCRON_APP",
    "DISTCRON_NAMESPACE",
    "DISTCRON_TZ",
    "DISTCRON_LEASE_TTL",
)


@pytest.fixture(autouse=True)
def _empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def settings(**options: Any) -> Settings:
    return Settings.from_options(options)


# -- given --------------------------------------------------------------------------------------------------


def test_without_options_the_defaults_hold() -> None:
    found = settings()
    assert found == Settings()
    assert (found.app, found.namespace, found.tz, found.lease_ttl) == ("default", None, "UTC", 3000)
    assert (found.redis, found.default_redis, found.history_size) == (None, None, 10_000)
    assert found.policy == Policy()


def test_options_are_checked_and_durations_come_out_in_milliseconds() -> None:
    found = settings(app="shop", namespace="ns", tz="Europe/Berlin", lease_ttl=5, history_size=500, redis="redis://h/1")
    assert (found.app, found.namespace, found.tz) == ("shop", "ns", "Europe/Berlin")
    assert (found.lease_ttl, found.history_size, found.redis) == (5000, 500, "redis://h/1")
    assert settings(lease_ttl=timedelta(seconds=1.5)).lease_ttl == 1500


def test_policies_are_the_defaults_of_every_schedule() -> None:
    found = settings(catch_up="all", misfire_grace_time=timedelta(minutes=1), max_catch_up=7)
    assert found.policy == Policy(catch_up="all", misfire_grace_time=60_000, max_catch_up=7)


def test_settings_do_not_change() -> None:
    with pytest.raises(AttributeError):
        settings().app = "other"  # type: ignore[misc]


def test_a_client_is_accepted_in_place_of_a_url() -> None:
    client = redis.Redis()
    assert settings(redis=client).redis is client
    client.close()


def test_the_middleware_can_be_built_without_arguments() -> None:
    assert DistCron().settings == Settings()


def test_every_option_has_a_check() -> None:
    defaults = {
        name: getattr(Settings(), name) for name in DistCronOptions.__annotations__ if hasattr(Settings(), name)
    }
    assert set(defaults) | set(PolicyOptions.__annotations__) == set(DistCronOptions.__annotations__)
    assert settings(**{**defaults, "lease_ttl": 3.0}) == Settings()


# -- refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "meant"), [("lease_tll", "lease_ttl"), ("catchup", "catch_up"), ("name_space", "namespace")]
)
def test_an_unknown_option_is_refused_with_a_suggestion(option: str, meant: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"DistCron\(\) has no option '{option}'. Did you mean '{meant}'\?"):
        settings(**{option: 1})


@pytest.mark.parametrize("option", ["heartbeat", "exclusive", "rate_limit", "dead_letters"])
def test_an_option_that_is_not_built_yet_is_refused_and_not_ignored(option: str) -> None:
    with pytest.raises(ConfigurationError, match=f"has no option '{option}'"):
        settings(**{option: None})


@pytest.mark.parametrize("value", [0, 0.1, 0.499, timedelta(milliseconds=499)])
def test_a_lease_that_is_too_short_to_be_renewed_is_refused_with_what_to_do(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"shorter than it can be renewed.*at least 0.5 s; the default is 3 s"):
        settings(lease_ttl=value)


def test_the_shortest_lease_is_accepted() -> None:
    assert checked_lease_ttl(0.5) == 500


@pytest.mark.parametrize("value", [-1, "3", None, True, float("nan")])
def test_a_lease_that_is_no_duration_is_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="lease_ttl must be"):
        settings(lease_ttl=value)


@pytest.mark.parametrize("value", ["", "a b", "a:b", "x" * 65, "ä", "a\n", "{a}", 5, None])
def test_an_app_that_cannot_be_part_of_a_key_is_refused_with_the_reason(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"app must be a short name.*part of every key in Redis"):
        settings(app=value)


@pytest.mark.parametrize("value", ["a", "shop-2.eu_west", "x" * 64])
def test_a_short_name_of_letters_digits_dots_and_dashes_is_an_app(value: str) -> None:
    assert settings(app=value).app == value


@pytest.mark.parametrize("value", ["", 5, True])
def test_a_namespace_that_is_no_prefix_is_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="namespace must be the prefix of Dramatiq's keys"):
        settings(namespace=value)


@pytest.mark.parametrize("value", ["Mars/Olympus", "+02:00", None, 5])
def test_a_zone_that_is_not_known_is_refused(value: Any) -> None:
    with pytest.raises(ScheduleError, match="time zone"):
        settings(tz=value)


@pytest.mark.parametrize("value", [99, 0, -1, 1000.0, "1000", None, True])
def test_a_history_that_is_too_small_or_no_number_is_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="history_size must be a whole number of records from 100"):
        settings(history_size=value)


@pytest.mark.parametrize("value", [5, b"redis://h", ["redis://h"], object()])
def test_a_redis_that_is_neither_url_nor_client_is_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="redis must be a URL like"):
        settings(redis=value)


def test_a_policy_that_cannot_be_is_refused_with_a_hint() -> None:
    with pytest.raises(ConfigurationError, match=r"catch_up cannot be 'lates'. Did you mean 'latest'"):
        settings(catch_up="lates")


# -- from the environment -----------------------------------------------------------------------------------


def test_what_is_not_given_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in zip(VARIABLES, ["redis://h/2", "shop", "ns", "Asia/Tokyo", "1.5"], strict=True):
        monkeypatch.setenv(name, value)
    found = settings()
    assert (found.default_redis, found.redis) == ("redis://h/2", None)
    assert (found.default_namespace, found.namespace) == ("ns", None)
    assert (found.app, found.tz, found.lease_ttl) == ("shop", "Asia/Tokyo", 1500)


def test_what_is_given_is_stronger_than_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTCRON_APP", "shop")
    monkeypatch.setenv("DISTCRON_LEASE_TTL", "10")
    found = settings(app="other", lease_ttl=2)
    assert (found.app, found.lease_ttl) == ("other", 2000)


@pytest.mark.parametrize("name", VARIABLES)
def test_an_empty_variable_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "")
    assert settings() == Settings()


def test_a_lease_from_the_environment_that_is_no_number_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTCRON_LEASE_TTL", "soon")
    with pytest.raises(ConfigurationError, match="DISTCRON_LEASE_TTL must be a number of seconds, not 'soon'"):
        settings()


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("DISTCRON_APP", "a b", "app must be a short name"),
        ("DISTCRON_TZ", "Mars/Olympus", "not known"),
        ("DISTCRON_LEASE_TTL", "0.1", "shorter than it can be renewed"),
        ("DISTCRON_LEASE_TTL", "nan", "lease_ttl must be"),
    ],
)
def test_values_from_the_environment_are_checked_as_all_others_and_the_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, told: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=f"The environment variable {name} cannot be used: .*{told}"):
        settings()


def test_a_variable_that_is_not_needed_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTCRON_LEASE_TTL", "soon")
    assert settings(lease_ttl=2).lease_ttl == 2000
