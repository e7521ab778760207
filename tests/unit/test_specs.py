"""Specs: what is stored of a schedule comes back as it was, and rubbish is refused with one kind of error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import dramatiq
import pytest
from dramatiq.encoder import Encoder, JSONEncoder, PickleEncoder
from hypothesis import example, given
from hypothesis import strategies as st

from dramatiq_distcron import ConfigurationError, Schedule, cron, every
from dramatiq_distcron.arguments import decode_payload, encode_payload
from dramatiq_distcron.errors import ScheduleError
from dramatiq_distcron.policies import Policy
from dramatiq_distcron.schedules import CronTiming, EveryTiming, Timing
from dramatiq_distcron.specs import (
    FORMAT,
    NotForUs,
    Pause,
    Retired,
    Spec,
    parse_spec,
    resolve,
)
from tests.unit.test_policies import policies

EMPTY: dict[str, Any] = {"args": [], "kwargs": {}, "options": {}}

names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=50)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=10,
)
timings: st.SearchStrategy[Timing] = st.one_of(
    st.builds(EveryTiming, st.integers(1000, 10**11), st.integers(-(10**13), 10**13)),
    st.sampled_from(["* * * * *", "*/5 8-18 * * mon-fri", "0 0 L * *", "H H * * *"]).flatmap(
        lambda text: st.sampled_from(["UTC", "Europe/Berlin"]).map(lambda tz: cron(text, tz=tz).timing)
    ),
)
instants = st.integers(0, 10**13)
payloads = st.fixed_dictionaries(
    {
        "args": st.lists(json_values, max_size=3),
        "kwargs": st.dictionaries(names, json_values, max_size=3),
        "options": st.dictionaries(names, json_values, max_size=3),
    }
)


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    name = draw(names)
    return Spec(
        name=name,
        actor=draw(names),
        queue=draw(names),
        timing=draw(timings).bind(name, "UTC"),
        policy=draw(policies),
        payload=draw(payloads),
        source=draw(st.sampled_from(["code", "api"])),
        retired=draw(st.none() | st.builds(Retired, st.integers(0, 10**13), st.integers(0, 10**13))),
        paused=draw(st.none() | st.builds(Pause, instants, st.text(), st.none() | instants)),
    )


def stored(spec: Spec, **changes: Any) -> str:
    """The text a store keeps of ``spec``, with some of it changed."""
    return json.dumps({"revision": 7, **spec.to_json(), **changes})


SPEC = Spec("job", "actor", "default", EveryTiming(60_000), payload=EMPTY)


@pytest.fixture
def pickled() -> Iterator[None]:
    before = dramatiq.get_encoder()
    dramatiq.set_encoder(PickleEncoder())
    yield
    dramatiq.set_encoder(before)


# -- the stored form ----------------------------------------------------------------------------------------


@given(specs())
def test_a_spec_comes_back_as_it_was_stored(spec: Spec) -> None:
    assert parse_spec(stored(spec)) == spec


@given(specs())
def test_a_spec_keeps_its_fingerprint_in_the_store(spec: Spec) -> None:
    again = parse_spec(stored(spec))
    assert again.fingerprint == spec.fingerprint
    assert json.loads(stored(spec))["fingerprint"] == spec.fingerprint


@given(specs())
def test_a_spec_fires_at_the_same_times_after_it_was_stored(spec: Spec) -> None:
    assert parse_spec(stored(spec)).timing.next_ms(10**12) == spec.timing.next_ms(10**12)


def test_format_and_source_come_first_so_that_a_look_is_enough() -> None:
    assert list(SPEC.to_json())[:2] == ["format", "source"]
    assert "revision" not in SPEC.to_json()


# -- the fingerprint ----------------------------------------------------------------------------------------


def test_a_fingerprint_is_the_same_in_every_process() -> None:
    code = "from tests.unit.test_specs import SPEC; print(SPEC.fingerprint)"
    prints = {
        subprocess.check_output([sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, text=True)
        for seed in ("1", "2")
    }
    assert prints == {SPEC.fingerprint + "\n"}


@given(specs(), st.integers(1, 10**13))
def test_a_fingerprint_does_not_depend_on_bookkeeping(spec: Spec, number: int) -> None:
    other = replace(spec, retired=Retired(number, number), source="api", paused=Pause(number, "unpaid"))
    assert other.fingerprint == spec.fingerprint


def test_a_fingerprint_does_not_depend_on_the_order_of_names() -> None:
    one = replace(SPEC, payload={"args": [], "kwargs": {"a": 1, "b": 2}, "options": {}})
    other = replace(SPEC, payload={"options": {}, "kwargs": {"b": 2, "a": 1}, "args": []})
    assert one.fingerprint == other.fingerprint


@pytest.mark.parametrize(
    "change",
    [
        {"actor": "other"},
        {"queue": "other"},
        {"timing": EveryTiming(61_000)},
        {"timing": EveryTiming(60_000, 1)},
        {"timing": cron("* * * * *", tz="UTC").timing},
        {"policy": Policy(catch_up="all")},
        {"policy": Policy(misfire_grace_time=1)},
        {"policy": Policy(max_catch_up=1)},
        {"policy": Policy(overlap="skip")},
        {"policy": Policy(overlap_timeout=1000)},
        {"policy": Policy(spread=1)},
        {"policy": Policy(expires=1)},
        {"policy": Policy(start=1)},
        {"policy": Policy(end=1)},
        {"policy": Policy(enabled=False)},
        {"policy": Policy(max_queue_length=1)},
        {"policy": Policy(run_at_start=True)},
        {"payload": {**EMPTY, "args": [1]}},
        {"payload": {**EMPTY, "kwargs": {"a": None}}},
        {"payload": {**EMPTY, "options": {"max_age": 1}}},
    ],
    ids=str,
)
def test_whatever_changes_what_happens_changes_the_fingerprint(change: dict[str, Any]) -> None:
    assert replace(SPEC, **change).fingerprint != SPEC.fingerprint


def test_the_zone_changes_the_fingerprint() -> None:
    berlin, utc = (replace(SPEC, timing=cron("0 3 * * *", tz=tz).timing) for tz in ("Europe/Berlin", "UTC"))
    assert berlin.fingerprint != utc.fingerprint


class LooksAlike:
    def __init__(self, value: int) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "<Report>"


def test_pickled_arguments_that_only_look_alike_have_different_fingerprints(pickled: None) -> None:
    """Or an edit of such an argument would never be in force."""
    prints = {_resolved(every(60, args=[LooksAlike(value)])).fingerprint for value in (1, 2)}
    assert len(prints) == 2


# -- from code to spec --------------------------------------------------------------------------------------


def _resolved(schedule: Schedule, **settings: Any) -> Spec:
    return resolve(
        schedule,
        **{"name": "job", "actor": "actor", "queue": "default", "tz": "UTC", "policy": Policy(), **settings},
    )


def test_a_schedule_in_code_becomes_a_spec_with_every_default_filled_in() -> None:
    spec = _resolved(cron("H 3 * * *", catch_up="all"), tz="Europe/Berlin", policy=Policy(max_catch_up=7))
    assert isinstance(spec.timing, CronTiming)
    assert spec.timing.timezone == "Europe/Berlin"
    assert not spec.timing.cron.has_hash
    assert spec.policy == Policy(catch_up="all", max_catch_up=7)
    assert spec.payload == EMPTY
    assert (spec.source, spec.retired) == ("code", None)


def test_arguments_are_kept_in_the_form_json_gives_them() -> None:
    spec = _resolved(every(60, args=((1, 2), "ü"), kwargs={"a": {"b": None}}, options={"max_age": 5}))
    assert spec.payload == {"args": [[1, 2], "ü"], "kwargs": {"a": {"b": None}}, "options": {"max_age": 5}}
    assert decode_payload(spec.payload) == spec.payload


def test_arguments_that_json_cannot_hold_are_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigurationError, match=r"schedule 'job' cannot be encoded by JSONEncoder.*set_encoder\(\)"):
        _resolved(every(60, args=(datetime(2026, 1, 1),)))


def test_with_another_encoder_they_are_encoded_by_that_one(pickled: None) -> None:
    when = datetime(2026, 1, 1, tzinfo=timezone.utc)
    spec = _resolved(every(60, args=(when,), kwargs={"a": {1, 2}}))
    json.dumps(spec.to_json())
    assert decode_payload(spec.payload) == {"args": [when], "kwargs": {"a": {1, 2}}, "options": {}}
    assert parse_spec(stored(spec)).payload == spec.payload


def test_arguments_that_no_encoder_can_hold_are_refused(pickled: None) -> None:
    with pytest.raises(ConfigurationError, match="cannot be encoded by PickleEncoder"):
        _resolved(every(60, args=(threading.Lock(),)))


def test_arguments_of_another_encoder_are_refused_with_what_to_do() -> None:
    payload = encode_payload(every(60, args=({1},)), "job", "job", "default", PickleEncoder())
    with pytest.raises(ScheduleError, match=r"encoded with PickleEncoder, and this process uses JSONEncoder.*--broker"):
        decode_payload(payload)


class BinaryJSON(Encoder):
    """A JSON encoder that is none of Dramatiq's."""

    def encode(self, data: Any) -> bytes:
        return b"\xff" + JSONEncoder().encode(data)

    def decode(self, data: bytes) -> Any:
        return JSONEncoder().decode(data[1:])


def test_an_encoder_given_by_hand_is_used() -> None:
    payload = encode_payload(every(60, args=(1,)), "job", "job", "default", BinaryJSON())
    assert payload["encoder"] == "BinaryJSON"


class Compressing(JSONEncoder):
    """A descendant of Dramatiq's encoder whose output is no JSON."""

    def encode(self, data: Any) -> bytes:
        return zlib.compress(super().encode(data))

    def decode(self, data: bytes) -> Any:
        return super().decode(zlib.decompress(data))


def test_a_descendant_of_the_json_encoder_need_not_give_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dramatiq.message.global_encoder", Compressing())
    spec = _resolved(every(60, args=(1, "ü")))
    assert parse_spec(stored(spec)) == spec
    assert decode_payload(spec.payload)["args"] == [1, "ü"]


# -- what cannot be used ------------------------------------------------------------------------------------


def test_a_spec_of_a_newer_form_is_told_from_rubbish() -> None:
    with pytest.raises(NotForUs, match=f"form {FORMAT + 1}; this version knows forms up to {FORMAT}"):
        parse_spec(json.dumps({"format": FORMAT + 1, "a": "field of the future"}))


@given(st.text() | json_values.map(json.dumps))
@example("")
@example("{rubbish")
@example("null")
@example("[]")
@example("{}")
@example('{"format": null}')
@example('{"format": "1"}')
def test_rubbish_is_refused_and_nothing_else_happens(text: str) -> None:
    with pytest.raises(ScheduleError):
        parse_spec(text)


@given(st.sampled_from(sorted(SPEC.to_json().keys() - {"fingerprint", "paused"})))
def test_a_spec_with_a_field_missing_is_refused(field: str) -> None:
    data = json.loads(stored(SPEC))
    del data[field]
    with pytest.raises(ScheduleError):
        parse_spec(json.dumps(data))


def test_a_spec_that_was_stored_before_there_were_pauses_and_these_policies_is_read() -> None:
    data = json.loads(stored(SPEC))
    del data["paused"]
    data["policy"] = {"catch_up": "latest", "misfire_grace_time": None, "max_catch_up": 100}
    assert parse_spec(json.dumps(data)) == SPEC


@given(st.sampled_from([*SPEC.to_json(), "revision"]), json_values)
def test_a_spec_with_a_field_of_any_value_is_refused_or_read(field: str, value: Any) -> None:
    try:
        assert isinstance(parse_spec(stored(SPEC, **{field: value})), Spec)
    except ScheduleError:
        pass


CRON = {"kind": "cron", "expression": "* * * * *", "seconds": None, "timezone": "UTC"}
POLICY = {"catch_up": "latest", "misfire_grace_time": None, "max_catch_up": 100}


@pytest.mark.parametrize(
    "change",
    [
        {"timing": {"kind": "lunar"}},
        {"timing": {"kind": "every", "interval": "x", "anchor": 0}},
        {"timing": {**CRON, "expression": "61 * * * *"}},
        {"timing": {**CRON, "expression": 5}},
        {"timing": {**CRON, "seconds": "middle"}},
        {"policy": {**POLICY, "unknown": 1}},
        {"policy": []},
        {"retired": {"at": 1}},
        {"paused": {"since": 1}},
        {"paused": {"since": "x", "reason": "", "until": None}},
        {"paused": {"since": 1, "reason": "", "until": "x"}},
        {"paused": 5},
    ],
    ids=str,
)
def test_a_spec_with_a_part_that_cannot_be_used_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ScheduleError):
        parse_spec(stored(SPEC, **change))


@pytest.mark.parametrize(
    "change",
    [
        {"timing": {**CRON, "timezone": "Mars/Olympus"}},
        {"timing": {**CRON, "timezone": 5}},
        {"timing": {"kind": "every", "interval": 0, "anchor": 0}},
        {"timing": {"kind": "every", "interval": -1000, "anchor": 0}},
        {"timing": {"kind": "every", "interval": float("inf"), "anchor": 0}},
        {"policy": {**POLICY, "catch_up": "lates"}},
        {"policy": {**POLICY, "max_catch_up": "x"}},
        {"policy": {**POLICY, "misfire_grace_time": "x"}},
        {"policy": {**POLICY, "overlap": "maybe"}},
        {"policy": {**POLICY, "spread": 1.5}},
        {"policy": {**POLICY, "spread": -1}},
        {"policy": {**POLICY, "expires": -1}},
        {"policy": {**POLICY, "start": "2026-01-01"}},
        {"policy": {**POLICY, "enabled": "yes"}},
        {"policy": {**POLICY, "max_queue_length": 0}},
        {"payload": []},
        {"payload": {}},
        {"payload": {"args": 5, "kwargs": {}, "options": {}}},
        {"payload": {"args": [], "kwargs": {}, "options": []}},
        {"name": 5},
        {"actor": ["x"]},
        {"queue": None},
    ],
    ids=str,
)
def test_a_spec_that_would_fail_in_the_pass_is_refused_when_it_is_read(change: dict[str, Any]) -> None:
    """Whatever gets past here stops the pass, and with it every other schedule."""
    with pytest.raises(ScheduleError):
        parse_spec(stored(SPEC, **change))


def test_rubbish_that_is_deeply_nested_is_refused_as_any_other() -> None:
    with pytest.raises(ScheduleError):
        parse_spec("[" * 100_000)


@pytest.mark.parametrize("encoded", ["!!", "bm90IHBpY2tsZWQ="])
def test_arguments_that_cannot_be_decoded_are_a_fault_of_the_schedule(encoded: str, pickled: None) -> None:
    with pytest.raises(ScheduleError):
        decode_payload({"encoder": "PickleEncoder", "encoded": encoded})
