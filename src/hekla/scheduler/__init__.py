"""Where pods go, and why not: a pure core, and the service that carries out its plans.

    core        decide(cluster, config, now) -> Plan
    plugin      how to write a plugin; the names below are all it takes

Import other names from the module that owns them.
"""

from hekla.scheduler.plugin import (
    PERMIT,
    REJECT,
    InTurn,
    Invalid,
    Normalized,
    PerNodePlugin,
    Plugin,
)

__all__ = ["PERMIT", "REJECT", "InTurn", "Invalid", "Normalized", "PerNodePlugin", "Plugin"]
