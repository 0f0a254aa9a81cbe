"""Job plugins, which a job enables by name in `spec.plugins`."""

from hekla.controllers.job.plugins import (
    env,
    hcclrank,
    mpi,
    pytorch,
    ray,
    ssh,
    svc,
    tensorflow,
)
from hekla.controllers.job.plugins.plugin import (
    JobPlugin,
    ManagedObject,
    PodContext,
    known_plugins,
    plugins_of,
    register,
)

__all__ = [
    "JobPlugin",
    "ManagedObject",
    "PodContext",
    "env",
    "hcclrank",
    "known_plugins",
    "mpi",
    "plugins_of",
    "pytorch",
    "ray",
    "register",
    "ssh",
    "svc",
    "tensorflow",
]
