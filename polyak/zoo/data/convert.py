"""``polyak data convert``: a dataset in another format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from polyak.zoo.data.files import load, save
from polyak.zoo.options import CommandOptions, option


@dataclass
class ConvertOptions(CommandOptions):
    """Read a dataset in any format and write it in another."""

    source: str = option("", help="File or folder to read, or the id of a Minari dataset.")
    target: str = option("", help="File to write: .npz, .csv or .parquet; with --format minari a folder.")
    format: str = option("", "--format", help="npz, csv, parquet or minari; by default as the target's name says.")
    source_format: str = option("", "--from", help="Format of the source; by default found by what it holds.")
    env: str = option("", "--env", "-e", help="Environment whose spaces the dataset is to have.")
    gym_packages: Sequence[str] = option([], "--gym-packages", help="Packages to import that register environments.")
    trust: bool = option(False, "--trust/", help="Also run pickled code in the source; for files that you trust only.")


def convert(options: ConvertOptions) -> Path:
    """Write the dataset that `options` name and return its path; ZooError if it cannot be read or written."""
    source, packages = options.source, options.gym_packages
    dataset = load(source, format=options.source_format, env=options.env, gym_packages=packages, trust=options.trust)
    path = save(dataset, options.target, "TARGET", options.format)
    print(f"{dataset}\nWrote {path}")
    return path
