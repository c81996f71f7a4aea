"""``polyak data collect``: record a trained agent or random actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyak.zoo.data.files import save
from polyak.zoo.errors import ZooError, usage_errors
from polyak.zoo.literals import parse_pairs
from polyak.zoo.options import CommandOptions, option
from polyak.zoo.output import outlasting_the_reader, writable_file
from polyak.zoo.registry import check_algorithm, find_algorithm, find_env
from polyak.zoo.sizes import MOST_ENVS


@dataclass
class CollectOptions(CommandOptions):
    """Record a trained agent, or random actions, as a dataset."""

    env: str = option("", "--env", "-e", help="Environment id, module:id, or file.py:NAME of your own.")
    model: str = option("", "--model", "-m", help="Saved model (.zip) that acts; without one actions are random.")
    algo: str = option("", "--algo", "-a", help="Algorithm of the model, if its file does not say.")
    n: int = option(10_000, "--n", "-n", help="Steps to record.", at_least=1)
    out: str = option("", "--out", "-o", help="File to write: .npz, .csv or .parquet.")
    format: str = option("", "--format", help="npz, csv, parquet or minari (a folder); by default as the name says.")
    seed: int = option(0, "--seed", help="Seed of the environments and of random actions.")
    n_envs: int = option(1, "--n-envs", help="Environments that share the steps.", at_least=1, at_most=MOST_ENVS)
    deterministic: bool = option(False, "--deterministic/", help="Most likely actions instead of sampled ones.")
    whole_episodes: bool = option(False, "--whole-episodes/", help="Let the last episodes end, beyond --n.")
    env_kwargs: Sequence[str] = option([], "--env-kwargs", help="key:value ... for the environment's constructor.")
    gym_packages: Sequence[str] = option([], "--gym-packages", help="Packages to import that register environments.")
    device: str = option("auto", "--device", help="auto, cpu, cuda, ...")
    trust: bool = option(False, "--trust/", help="Also run pickled code in the model; for files that you trust only.")


@outlasting_the_reader("the recording")
def collect(options: CollectOptions) -> Path:
    """Record as `options` say, write the dataset and return its path; ZooError if that cannot be done."""
    if not options.env:
        raise ZooError("Which environment? Give --env.")
    if not options.out:
        raise ZooError("Where to? Give --out.")
    if options.algo:
        check_algorithm(options.algo)
    environment = find_env(options.env, options.gym_packages)
    from polyak.envs import make_vec_env
    from polyak.experience import collect as record
    from polyak.experience.datasets.formats import target_of
    from polyak.learning.engine.threads import chosen_threads
    from polyak.seeding import set_random_seed

    with usage_errors("--out"):
        target, kind = target_of(options.out, options.format or None)
    if kind != "minari":
        writable_file("--out", str(target))
    kwargs = parse_pairs(options.env_kwargs, "--env-kwargs")
    set_random_seed(options.seed)
    with chosen_threads(-1):
        model = _load(options) if options.model else None
        with usage_errors(f"Cannot make the environment {environment.name}"):
            envs = make_vec_env(environment.spec, n_envs=options.n_envs, env_kwargs=kwargs)
        try:
            with usage_errors(f"Cannot record in {environment.name}"):
                dataset = record(
                    envs,
                    model,
                    options.n,
                    deterministic=options.deterministic,
                    whole_episodes=options.whole_episodes,
                    seed=options.seed,
                )
        finally:
            envs.close()
    path = save(dataset, options.out, "--out", options.format)
    print(f"{dataset}\nMean return {dataset.returns.mean():.1f}\nWrote {path}")
    return path


def _load(options: CollectOptions) -> Any:
    """The model that acts."""
    from polyak.checkpoint.saved import read

    path = options.model
    if not Path(path).is_file():
        raise ZooError(f"--model {path!r} is not a file. Give the path of a saved .zip model.")
    with usage_errors(f"Cannot load {path}"):
        algorithm = find_algorithm(options.algo) if options.algo else _named(read(path, trust=options.trust).info)
        return algorithm.load(path, device=options.device, trust=options.trust)


def _named(about: dict[str, Any]) -> type[Any]:
    """Return the class of the algorithm that a file names."""
    from polyak.algorithms import class_of

    try:
        return class_of(about)
    except (KeyError, ValueError) as error:
        raise ZooError("--model does not say which algorithm made it. Give --algo.") from error
