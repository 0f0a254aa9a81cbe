"""Shuffle: evict the bound and running tasks that plugins select, without a preemptor.

No placement is planned: the controller of a victim creates it again, and it is scheduled like any
other pod. The action does nothing without a plugin that implements `victim_tasks`; of hekla's own,
only those configured for it do (Volcano's `pdb` selects every pod that it does not protect).
"""

from __future__ import annotations

from hekla.scheduler.framework import hooks
from hekla.scheduler.session.session import Session
from hekla.scheduler.state.status import BOUND, RUNNING

REASON = "shuffle"


def shuffle(session: Session) -> None:
    """Evict what the plugins select."""
    if not session.tiers.has(hooks.victim_tasks):
        return
    unevictable = session.cluster.unevictable
    candidates = [
        task
        for node in session.cluster.node_table.node_list
        for task in sorted(node.tasks.values(), key=lambda task: task.uid)
        if task.status in (BOUND, RUNNING) and task.job is not None and task.uid not in unevictable
    ]
    chosen = session.tiers.victim_tasks(candidates)
    with session.statement() as statement:
        for task, is_chosen in zip(candidates, chosen.tolist(), strict=True):
            if is_chosen:
                statement.evict(task, REASON)
        statement.commit()
