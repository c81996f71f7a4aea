"""The cluster that ``--address`` and ``--working-dir`` name."""

from __future__ import annotations

import os
from pathlib import Path

from polyak.zoo.errors import ZooError


def join(address: str, working_dir: str) -> None:
    """Let processes on Ray be there from now on.

    Raises:
        ZooError: the folder is none, or there is no cluster to send it to.
    """
    if working_dir and not Path(working_dir).is_dir():
        raise ZooError(f"--working-dir {working_dir!r} is not a folder.")
    if working_dir and not (address or os.environ.get("RAY_ADDRESS")):
        raise ZooError("--working-dir: a folder is sent to the nodes of a cluster. Give --address, or set RAY_ADDRESS.")
    if address or working_dir:
        from polyak.distributed.ray_workers import join_cluster

        join_cluster(address, working_dir)
