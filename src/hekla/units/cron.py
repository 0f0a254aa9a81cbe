"""Cron schedules: five fields, a name such as `@daily`, or `@every 90m`.

cronsim computes the five fields, with time zones and daylight saving; the names and `@every` are
those of robfig/cron, which Volcano uses.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from cronsim import CronSim, CronSimError

from hekla.units.durations import DurationError, parse_duration

_NAMES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_ANY_MOMENT: Final = datetime(2026, 1, 1)

Next = Callable[[datetime], datetime]
"""Returns the first time after a given one."""


class CronError(ValueError):
    """The text is not a schedule."""


def parse_cron(text: str) -> Next:
    """Return a function from a time to the next time of the schedule.

    >>> parse_cron("30 3 * * *")(datetime(2026, 5, 1, 12, 0))
    datetime.datetime(2026, 5, 2, 3, 30)
    """
    text = text.strip()
    if text.startswith("@every "):
        return _every(text.removeprefix("@every ").strip())
    fields = _NAMES.get(text, text)
    if fields.startswith("@"):
        raise CronError(f"unknown name {text!r}; there are {', '.join(_NAMES)} and @every")
    if len(fields.split()) != 5:
        raise CronError(
            f"expected five fields (minute, hour, day, month, weekday), found {len(fields.split())}"
        )
    try:
        CronSim(fields, _ANY_MOMENT)
    except CronSimError as error:
        raise CronError(f"not a schedule: {error}") from error

    def following(moment: datetime) -> datetime:
        found: datetime = next(CronSim(fields, moment))
        return found

    return following


def _every(text: str) -> Next:
    try:
        seconds = parse_duration(text)
    except DurationError as error:
        raise CronError(f"@every needs a duration such as 90m: {error}") from error
    # Whole seconds, and at least one, as robfig/cron.
    step = timedelta(seconds=max(1, int(seconds)))
    return lambda moment: moment.replace(microsecond=0) + step
