"""Shuffle: tasks that a plugin wants elsewhere are told to leave, running or about to.

No room is looked for: whoever leaves is made anew by its controller and scheduled as any other. So
this does nothing without a plugin that answers `victim_tasks`, and none of hekla's own does unless
it was asked to (Volcano's `pdb` offers every pod it does not protect).
"""

from __future__ import annotations

from hekla.scheduler.framework import hooks
from hekla.scheduler.session.session import Session
from hekla.scheduler.state.model import BOUND, RUNNING

REASON = "shuffle"


def shuffle(session: Session) -> None:
    if not session.tiers.has(hooks.victim_tasks):
        return
    unevictable = session.cluster.unevictable
    there = [
        task
        for node in session.cluster.node_table.node_list
        for task in sorted(node.tasks.values(), key=lambda task: task.uid)
        if task.status in (BOUND, RUNNING) and task.job is not None and task.uid not in unevictable
    ]
    chosen = session.tiers.victim_tasks(there)
    with session.statement() as statement:
        for task, goes in zip(there, chosen.tolist(), strict=True):
            if goes:
                statement.evict(task, REASON)
        statement.commit()
