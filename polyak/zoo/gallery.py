"""``polyak gallery``: the trained agents that come with the package."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyak.zoo.options import CommandOptions, option

AGENTS = Path(__file__).parent / "agents"
"""Laid out as a folder of logs: ``<algo>/<EnvId>_1/``."""


@dataclass
class GalleryOptions(CommandOptions):
    """List the trained agents that come with polyak, with their scores; `polyak enjoy --pretrained` shows one."""

    output: str = option("text", "--output", "-o", help="text, or json alone on stdout.", choices=("text", "json"))


def agents() -> list[dict[str, Any]]:
    """Return the output of `polyak evaluate -o json` for each agent: ``algo``, ``env``, ``training_steps``,
    ``mean_return``, ..."""
    return [json.loads(score.read_text("utf-8")) for score in sorted(AGENTS.glob("*/*/score.json"))]


def gallery(options: GalleryOptions) -> None:
    """Print the pretrained agents."""
    rows = agents()
    if options.output == "json":
        print(json.dumps(rows, indent=1))
        return
    print(f"{'algorithm':<14} {'environment':<26} {'steps':>9} {'mean return':>12} {'deviation':>10} {'episodes':>9}")
    for row in rows:
        steps, mean, deviation = row["training_steps"], row["mean_return"], row["std_return"]
        print(f"{row['algo']:<14} {row['env']:<26} {steps:>9,} {mean:>12.1f} {deviation:>10.1f} {row['n_episodes']:>9}")
