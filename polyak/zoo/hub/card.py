"""The model card: the agent's page on the Hub, and the metadata by which the Hub lists and ranks it."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

#: The Hub's name of the library that reads a file of each format.
LIBRARIES = {"polyak": "polyak", "sb3": "stable-baselines3"}


@dataclass(frozen=True)
class Measured:
    """How an agent was measured: its episodes, the seed of their environment, and whether it took its best actions."""

    returns: tuple[float, ...]
    seed: int
    deterministic: bool

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(np.mean(self.returns))

    @property
    def std(self) -> float:
        """Standard deviation of the returns (of the population, as the Zoo has it)."""
        return float(np.std(self.returns))

    def results(self, when: str) -> dict[str, Any]:
        """Return the content of results.json, with the keys of the Zoo's; `when` is an ISO date."""
        return {
            "mean_reward": self.mean,
            "std_reward": self.std,
            "is_deterministic": self.deterministic,
            "n_eval_episodes": len(self.returns),
            "eval_datetime": when,
        }


def metadata(algo: str, env_id: str, measured: Measured, file_format: str) -> Any:
    """Return the metadata of a card, a ``huggingface_hub.ModelCardData`` with the mean return as its one result."""
    from huggingface_hub import EvalResult, ModelCardData

    library = LIBRARIES[file_format]
    result = EvalResult(
        task_type="reinforcement-learning",
        task_name="reinforcement-learning",
        dataset_type=env_id,
        dataset_name=env_id,
        metric_type="mean_reward",
        metric_name="mean_reward",
        metric_value=f"{measured.mean:.2f} +/- {measured.std:.2f}",
    )
    return ModelCardData(
        library_name=library,
        tags=[env_id, "deep-reinforcement-learning", "reinforcement-learning", library],
        model_name=algo.upper(),
        eval_results=[result],
    )


def write_card(
    algo: str,
    env_id: str,
    measured: Measured,
    *,
    file_format: str,
    which: str,
    steps: int,
    settings: str,
    versions: str,
) -> str:
    """Return the text of README.md.

    Args:
        algo: name of the algorithm.
        env_id: id of the environment.
        measured: the agent's episodes.
        file_format: ``polyak`` or ``sb3``.
        which: the flags that name this agent to ``load-from-hub``.
        steps: number of training steps.
        settings: the run's config.yml.
        versions: a sentence about the versions that it was made with.
    """
    from huggingface_hub import ModelCard

    card = ModelCard.from_template(
        metadata(algo, env_id, measured, file_format),
        template_str=files("polyak.zoo.hub").joinpath("card.md.j2").read_text(encoding="utf-8"),
        algo=algo,
        env=env_id,
        mean=measured.mean,
        std=measured.std,
        episodes=len(measured.returns),
        actions="deterministic" if measured.deterministic else "sampled",
        seed=measured.seed,
        format=file_format,
        which=which,
        steps=steps,
        settings=settings.strip(),
        versions=versions,
    )
    return str(card)
