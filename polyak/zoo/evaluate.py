"""``polyak evaluate``: the return of a trained agent over whole episodes."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyak.zoo.agent import AgentOptions, SavedAgent
from polyak.zoo.errors import ZooError
from polyak.zoo.options import option
from polyak.zoo.output import outlasting_the_reader
from polyak.zoo.registry import algorithm_name

if TYPE_CHECKING:
    from polyak.evaluation.in_environments import EvaluationResult
    from polyak.evaluation.intervals import Interval

_OUTPUTS = ("text", "json")


@dataclass
class EvaluateOptions(AgentOptions):
    """Measure a trained agent from logs/<algo>/<env>_<n>/: mean, deviation and success rate over whole episodes."""

    n_episodes: int = option(
        20, "--n-episodes", "-n", help="Episodes over all environments.", at_least=1, at_most=10**9
    )
    max_episode_steps: int = option(
        -1, "--max-episode-steps", help="Cut longer episodes, which count as they stand; -1: none is cut.", at_least=1
    )
    confidence: float = option(0.95, "--confidence", help="Level of the interval of the mean, between 0 and 1.")
    output: str = option("text", "--output", "-o", help="text, or json alone on stdout.", choices=_OUTPUTS)


def evaluate(options: EvaluateOptions) -> EvaluationResult:
    """Play the episodes that `options` specify, print the result and return it.

    Raises ZooError when the run, the model, the environment or an option value does not exist.
    """
    if not 0 < options.confidence < 1:
        raise ZooError(f"--confidence must lie between 0 and 1, got {options.confidence}.")
    with ExitStack() as stack:
        if options.output == "json":  # the output of agents and environments goes to stderr
            stack.enter_context(redirect_stdout(sys.stderr))
        agent = SavedAgent(options)
        from polyak.evaluation import in_environments as evaluation
        from polyak.learning.engine.threads import chosen_threads

        model, envs = stack.enter_context(agent.loaded(path := agent.path))
        stack.enter_context(outlasting_the_reader("evaluating"))
        stack.enter_context(chosen_threads(options.num_threads))
        result = evaluation.evaluate(
            model,
            envs,
            options.n_episodes,
            deterministic=agent.deterministic,
            seed=options.seed,
            max_steps_per_episode=options.max_episode_steps if options.max_episode_steps > 0 else None,
            confidence=options.confidence,
        )
        steps = int(model.num_timesteps)
    if options.output == "json":
        print(json.dumps(_as_data(options, agent, path, steps, result), indent=2))
    else:
        print(f"{path} ({steps:,} steps of training)\n{_in_words(result)}")
    return result


def _in_words(result: EvaluationResult) -> str:
    interval = f"{result.confidence:.0%} interval"
    lines = [
        f"Episodes: {len(result.returns)}" + (f", {result.n_capped} of them cut" if result.n_capped else ""),
        f"Mean return: {result.mean:.2f} +/- {result.std:.2f} ({interval} of the mean: {result.ci_in_words})",
        f"Mean length: {result.lengths.mean():.2f} +/- {result.lengths.std():.2f}",
    ]
    if result.success_rate is not None:
        lines.append(f"Success rate: {result.success_rate:.1%} ({interval}: {result.success_ci:.1%})")
    return "\n".join(lines)


def _as_data(
    options: EvaluateOptions, agent: SavedAgent, path: Path, steps: int, result: EvaluationResult
) -> dict[str, Any]:
    """The output of ``--output json``: results, agent and settings of the evaluation."""
    return {
        "algo": algorithm_name(options.algo),
        "env": agent.environment.name,
        "model": str(path),
        "training_steps": steps,
        "deterministic": agent.deterministic,
        "seed": options.seed,
        "n_episodes": len(result.returns),
        "n_cut": result.n_capped,
        "mean_return": result.mean,
        "std_return": result.std,
        "confidence": result.confidence,
        "interval": _ends(result.ci),
        "mean_length": float(result.lengths.mean()),
        "std_length": float(result.lengths.std()),
        "success_rate": result.success_rate,
        "success_interval": _ends(result.success_ci),
        "returns": result.returns.tolist(),
        "lengths": result.lengths.tolist(),
        "successes": None if result.successes is None else result.successes.tolist(),
    }


def _ends(interval: Interval | None) -> list[float] | None:
    return list(interval) if interval is not None and interval.is_known else None
