"""Replicas of hekla's components as processes, each behind its own proxy.

A thread per replica restarts it when it ends, as a Deployment does.
"""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from tools.faults.proxy import Proxy
from tools.kube.processes import leash

from hekla.kube import kubeconfig
from hekla.kube.resources import LEASES
from hekla.kube.sync_client import SyncClient
from tests.faults.waiting import until

ROOT = Path(__file__).parents[2]
LEASE_NAMES = {"scheduler": "volcano", "controllers": "vc-controller-manager"}
LEADS = re.compile(r"INFO hekla\.kube\.leases: (\S+) is the leader of ")
# Short, but long enough that a busy machine does not lose the lease all the time. The difference
# of the two bounds the time of a request, here through proxies that delay on purpose: with less
# than the default of 5 s the next leader could write before an old request arrives.
LEASE = ("--leader-elect", "--leader-elect-lease-duration=10s",
         "--leader-elect-renew-deadline=5s", "--leader-elect-retry-period=500ms")  # fmt: skip
PAUSE_S = 0.5


class Replica:
    """One process that is restarted when it ends, and can be killed or frozen."""

    def __init__(self, component: str, name: str, proxy: Proxy, directory: Path) -> None:
        self.component, self.name, self.proxy = component, name, proxy
        self.log = directory / f"{name}.log"
        self.starts = 0
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self.thaw()
        self._signal(signal.SIGKILL)
        self._thread.join(30)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def identities(self) -> list[str]:
        """Return the identities under which this replica has led, the last one last."""
        return LEADS.findall(self.log.read_text(errors="replace")) if self.log.exists() else []

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _keep(self) -> None:
        words = [
            *leash(), sys.executable, "-m", "hekla.cli.main", self.component,
            "--kubeconfig", str(self.proxy.kubeconfig), *LEASE,
        ]  # fmt: skip
        while not self._stopping.is_set():
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=ROOT
                )
            self.starts += 1
            self._process.wait()
            self._stopping.wait(PAUSE_S)


class Crew:
    """Two replicas of every component."""

    def __init__(self, config: Path, directory: Path, seed: int) -> None:
        self.config = config
        self.replicas: list[Replica] = []
        self.proxies: list[Proxy] = []
        for component in LEASE_NAMES:
            for letter in "ab":
                name = f"{component}-{letter}"
                proxy = Proxy(config, directory, name, seed=seed)
                self.proxies.append(proxy)
                self.replicas.append(Replica(component, name, proxy, directory))

    def leader(self, component: str) -> Replica:
        """Wait for a lease holder, and return it."""
        with SyncClient(kubeconfig.load(self.config)) as client:

            def found() -> Replica | None:
                lease = client.find(LEASES, LEASE_NAMES[component], namespace="volcano-system")
                holder = ((lease or {}).get("spec") or {}).get("holderIdentity")
                for replica in self.replicas:
                    is_ours = replica.component == component and holder
                    if is_ours and replica.identities()[-1:] == [holder]:
                        return replica
                return None

            return until(found)


@contextlib.contextmanager
def crew(config: Path, directory: Path, seed: int) -> Iterator[Crew]:
    made = Crew(config, directory, seed)
    with contextlib.ExitStack() as stack:
        for proxy in made.proxies:
            stack.enter_context(proxy)
        for replica in made.replicas:
            stack.callback(replica.stop)
            replica.start()
        yield made
