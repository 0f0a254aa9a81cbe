"""Job plugins: what a job asks for by name in `spec.plugins`."""

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
    Managed,
    Place,
    known_plugins,
    plugins_of,
    register,
)

__all__ = [
    "JobPlugin",
    "Managed",
    "Place",
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
