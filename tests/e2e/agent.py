"""A node agent as a separate process: `python -m tests.e2e.agent KUBECONFIG DIRECTORY`."""

import asyncio
import sys
from pathlib import Path

from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.nodeagent.agent import Agent


async def main(config: Path, directory: Path) -> None:
    async with Client(kubeconfig.load(config), component="agent") as client:
        await Agent(client, "box", directory).run()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
