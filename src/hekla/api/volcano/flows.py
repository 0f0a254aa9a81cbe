"""Admission of JobFlows, CronJobs and HyperNodes."""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from hekla.api.rules import names
from hekla.api.rules.fields import (
    FieldErrors,
    duplicate,
    forbidden,
    invalid,
    not_found,
    required,
    too_many,
)
from hekla.api.volcano import arrays, jobs
from hekla.api.volcano.view import View
from hekla.units.cron import CronError, parse_cron
from hekla.units.objects import Object
from hekla.units.patterns import PatternError, compile_pattern

_ZONE_PART: Final = re.compile(r"[A-Za-z.\-_0-9+]{1,14}", re.ASCII)
# The controller appends a dash and ten digits.
MAX_CRON_NAME: Final = 52


def check_flow(flow: Object) -> FieldErrors:
    flows = (flow.get("spec") or {}).get("flows") or []
    graph: dict[str, list[str]] = {}
    if len(flows) > jobs.MAX_TASKS:
        yield too_many("spec.flows", len(flows), jobs.MAX_TASKS)
        return
    known = {one.get("name") for one in flows}
    for index, one in enumerate(flows):
        targets = (one.get("dependsOn") or {}).get("targets") or []
        if one.get("name") in graph:
            yield duplicate(f"spec.flows[{index}].name", one.get("name"))
        graph[one.get("name") or ""] = targets
        for target in dict.fromkeys(targets):
            if target not in known:
                yield not_found(
                    f"spec.flows[{index}].dependsOn.targets",
                    target,
                    f"jobflow Flow is not DAG: vertex is not defined: {target}; add a flow of this "
                    "name",
                )
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        yield invalid(
            "spec.flows",
            " -> ".join(error.args[1]),
            "jobflow Flow is not DAG: dependsOn has a cycle",
        )


def check_template(template: Object, view: View) -> FieldErrors:
    """Check a JobTemplate, whose spec is a job spec."""
    spec = deepcopy(template.get("spec") or {})
    jobs.default({"metadata": {}, "spec": spec}, view)
    yield from jobs.check_spec(jobs.name_of(template["metadata"]), spec, view)


def check_cron(cron: Object, view: View) -> FieldErrors:
    spec = cron.get("spec") or {}
    name = cron["metadata"].get("name") or ""
    if len(name) > MAX_CRON_NAME:
        yield invalid("metadata.name", name, f"may not be longer than {MAX_CRON_NAME} characters")
    schedule = spec.get("schedule") or ""
    if not schedule:
        yield required("spec.schedule", "for example '0 3 * * *' or '@daily'")
    elif "TZ" in schedule:
        yield invalid("spec.schedule", schedule, "write the time zone into spec.timeZone")
    else:
        try:
            parse_cron(schedule)
        except CronError as error:
            yield invalid("spec.schedule", schedule, str(error))
    if spec.get("timeZone") is not None and (why := zone_problem(spec["timeZone"])):
        yield invalid("spec.timeZone", spec["timeZone"], why)
    template = spec.get("jobTemplate") or {}
    inner = deepcopy(template.get("spec") or {})
    job = {"metadata": template.get("metadata") or {}, "spec": inner}
    jobs.default(job, view)
    # A job's name is the cron job's name and ten digits.
    yield from jobs.check_spec(f"{name}-0000000000", inner, view, "spec.jobTemplate.spec")
    for wrong in arrays.check(job, f"{name}-0000000000"):
        yield replace(wrong, field=f"spec.jobTemplate.{wrong.field}")


def zone_problem(zone: str) -> str | None:
    """Return why a text is not a time zone, or None."""
    if not zone or zone.lower() == "local":
        return "must be the name of a time zone, such as 'Europe/Oslo'"
    for part in zone.split("/"):
        if not _ZONE_PART.fullmatch(part) or part in (".", "..") or part.startswith("-"):
            return f"the part {part!r} cannot be in the name of a time zone"
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return "no such time zone; 'Europe/Oslo' is one"
    return None


def check_hypernode(node: Object) -> FieldErrors:
    members = (node.get("spec") or {}).get("members") or []
    if not members:
        yield required("spec.members", "member must have at least one member")
    for index, member in enumerate(members):
        where = f"spec.members[{index}].selector"
        selector = member.get("selector") or {}
        given = [key for key in ("exactMatch", "regexMatch", "labelMatch") if key in selector]
        if len(given) != 1:
            listed = ", ".join(given) or "none"
            yield forbidden(
                where, f"exactly one of exactMatch, regexMatch, labelMatch; got {listed}"
            )
        pattern = (selector.get("regexMatch") or {}).get("pattern")
        if pattern is not None:
            try:
                compile_pattern(pattern)
            except PatternError as error:
                yield invalid(
                    f"{where}.regexMatch.pattern",
                    pattern,
                    f"member regexMatch pattern is invalid: it does not compile: {error}",
                )
        name = (selector.get("exactMatch") or {}).get("name")
        if name and (why := names.dns_subdomain(name)):
            yield invalid(f"{where}.exactMatch.name", name, why)
