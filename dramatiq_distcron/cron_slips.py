"""What two fields of a valid cron expression say together and is often not meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .cron_fields import DAY, HOUR, MINUTE, MONTH, SECOND, WEEKDAY, CronField, FieldKind

__all__ = ["slips"]

#: In years that are no leap years.
_MONTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def slips(fields: Mapping[FieldKind, CronField]) -> Iterator[str]:
    """One sentence each."""
    for finer, coarser in ((SECOND, MINUTE), (MINUTE, HOUR)):
        if finer in fields and _is_left_open(fields[finer], fields[coarser]):
            beside = f"{finer.name} '*' beside {coarser.name} {fields[coarser].text!r}"
            yield f"{beside}: all {finer.size} {finer.name}s match, and it fires in each; for once write 0"
    # Where a day of the week matches besides, no month is passed over.
    if fields[WEEKDAY].is_star and _leaves_months_out(fields[DAY], fields[MONTH]):
        yield f"day-of-month {fields[DAY].text!r}: a month without such a day is passed over; L is the last day of each"


def _is_left_open(finer: CronField, coarser: CronField) -> bool:
    """Whether all of the finer field is taken in single values of the coarser one. A range of these is meant."""
    is_restricted = coarser.mask != coarser.kind.everything
    return finer.is_unrestricted and is_restricted and not coarser.mask & coarser.mask >> 1


def _leaves_months_out(day: CronField, month: CronField) -> bool:
    """Whether a day is named, and not by a step or a range, that some month named does not have."""
    if day.is_star or day.has_hash:
        return False
    near = {number + step for number in day.values for step in (-1, 1)}
    alone = [number for number in day.values if number > 28 and number not in near]
    # One that no month named has is of leap years, and meant.
    return any(0 < sum(number > _MONTHS[one] for one in month.values) < len(month.values) for number in alone)
