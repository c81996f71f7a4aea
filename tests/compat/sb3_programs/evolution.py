"""Reading and writing a model's parameters: mutations of the weights improve a policy that A2C has taught."""

import argparse

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import A2C
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

Weights = dict[str, torch.Tensor]


def mutate(weights: Weights, scale: float, generator: torch.Generator) -> Weights:
    """Weights a random step away."""
    return {name: w + scale * torch.randn(w.shape, generator=generator) for name, w in weights.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--generations", type=int, default=3)
    parser.add_argument("--population", type=int, default=6)
    options = parser.parse_args()

    env = Monitor(gym.make("CartPole-v1"))
    model = A2C(
        "MlpPolicy", env, ent_coef=0.0, policy_kwargs={"net_arch": [32]}, seed=0, device="cpu", learning_rate=2e-3
    ).learn(options.steps)

    parameters = model.get_parameters()
    print("what a model holds:", sorted(parameters))
    acting = {name: w for name, w in parameters["policy"].items() if "policy" in name or "action" in name}
    print("of which this acts:", {name: tuple(w.shape) for name, w in acting.items()})

    def fitness(candidate: Weights) -> float:
        model.set_parameters({"policy": {**parameters["policy"], **candidate}}, exact_match=False)
        return float(evaluate_policy(model, env, n_eval_episodes=2)[0])

    generator = torch.Generator().manual_seed(0)
    best = fitness(acting)
    print("to begin with:", best)
    for generation in range(options.generations):
        tried = [
            (fitness(candidate), candidate)
            for candidate in (mutate(acting, 0.1, generator) for _ in range(options.population))
        ]
        elite = sorted(tried, key=lambda pair: pair[0], reverse=True)[: options.population // 3]
        acting = {name: torch.stack([w[name] for _, w in elite]).mean(0) for name in acting}
        best = max(best, elite[0][0])
        print(
            f"generation {generation}: mean of the elite {np.mean([score for score, _ in elite]):.0f}, best {best:.0f}"
        )

    model.set_parameters({"policy": {**parameters["policy"], **acting}}, exact_match=False)
    try:
        model.set_parameters({"polcy": {}})
    except ValueError:
        print("a name that is not there is an error")


if __name__ == "__main__":
    main()
