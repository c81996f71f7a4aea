"""Writes ``data/recurrent.npz`` with installed sb3-contrib: what its policies, sequences and rollouts come to.

    python tests/compat/make_recurrent.py

The same functions make the same arrays of polyak's classes, in :mod:`tests.compat.test_recurrent`.
"""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces

DATA = Path(__file__).parent / "data"
POLICIES: dict[str, dict[str, Any]] = {
    "own": {"n_lstm_layers": 2, "share_features_extractor": False},
    "shared": {"shared_lstm": True, "enable_critic_lstm": False},
    "none": {"enable_critic_lstm": False},
}
ENVS = {"CartPole-v1": (4, torch.tensor([0, 1, 1, 0, 1, 0])), "Pendulum-v1": (3, torch.linspace(-2, 2, 6)[:, None])}


def judged(policies: Any, aliases: Any, memory: str, env: str) -> dict[str, np.ndarray]:
    """Weights of a seeded policy, and what all of its methods come to: of two sequences of three steps."""
    options, (size, actions) = POLICIES[memory], ENVS[env]
    made = gym.make(env)
    torch.manual_seed(0)
    policy = policies.RecurrentActorCriticPolicy(
        made.observation_space, made.action_space, lambda _: 1e-3, net_arch=[5], lstm_hidden_size=6, **options
    )
    draw, layers = torch.Generator().manual_seed(1), options.get("n_lstm_layers", 1)
    states = aliases.RNNStates(*(tuple(torch.randn(2, layers, 2, 6, generator=draw)) for _ in range(2)))
    seen, starts = torch.randn(6, size, generator=draw), torch.tensor([0.0, 1, 0, 0, 0, 1])
    values, log_prob, entropy = policy.evaluate_actions(seen, actions, states, starts)
    (values.sum() + log_prob.sum() + entropy.sum()).backward()
    results = {f"weight/{name}": weight for name, weight in policy.state_dict().items()}
    results |= {f"gradient/{name}": weight.grad for name, weight in policy.named_parameters()}
    results |= {"values": values, "log_prob": log_prob, "entropy": entropy}
    acted, values, log_prob, then = policy.forward(seen[:2], states, starts[:2], deterministic=True)
    results |= {"acted": acted, "acted_values": values, "acted_log_prob": log_prob}
    results |= {f"then/{i}": state for i, state in enumerate((*then.pi, *then.vf))}
    distribution, then = policy.get_distribution(seen, states.pi, starts)
    results |= {"mode": distribution.mode(), "after/0": then[0], "after/1": then[1]}
    results["predicted_values"] = policy.predict_values(seen, states.vf, starts)
    return {name: tensor.detach().numpy().copy() for name, tensor in results.items()}


def cut(buffers: Any) -> dict[str, np.ndarray]:
    """Sequences of seven rows, padded."""
    starts, pad, flatten = buffers.create_sequencers(np.eye(7)[3], np.eye(7)[0] + np.eye(7)[5], "cpu")
    pairs = np.arange(14.0).reshape(7, 2)
    results = {"starts": starts, "pairs": pad(pairs).numpy(), "flat": flatten(pairs).numpy()}
    return results | {"padded": pad(np.arange(7, dtype=np.float32), padding_value=9).numpy()}


def rolled_out(buffers: Any, aliases: Any, nested: bool) -> dict[str, np.ndarray]:
    """What a rollout of eight steps in two environments holds, and its minibatches."""
    box: spaces.Space = spaces.Box(-1, 1, (2, 3))
    space = spaces.Dict({"a": box, "b": spaces.Discrete(2)}) if nested else box
    kind = buffers.RecurrentDictRolloutBuffer if nested else buffers.RecurrentRolloutBuffer
    buffer, rng = kind(8, space, spaces.Discrete(2), (8, 2, 2, 4), "cpu", 0.9, 0.8, n_envs=2), np.random.default_rng(0)
    for t in range(8):
        states = aliases.RNNStates(*(tuple(torch.tensor(rng.normal(size=(2, 2, 2, 4)))) for _ in range(2)))
        seen = rng.normal(size=(2, 2, 3))
        observations = {"a": seen, "b": np.array([t % 2, 1])} if nested else seen
        starts = np.array([t in (0, 3), t in (0, 5, 6)])
        numbers = rng.normal(size=(3, 2))
        given = numbers[0], starts, torch.tensor(numbers[1]), torch.tensor(numbers[2])
        buffer.add(observations, np.array([[0], [1]]), *given, lstm_states=states)
    buffer.compute_returns_and_advantage(torch.ones(2), np.zeros(2))
    names = ("hidden_states_pi", "cell_states_pi", "hidden_states_vf", "cell_states_vf")
    results = {name: getattr(buffer, name).copy() for name in names}
    np.random.seed(3)  # whose draws the buffers make
    for i, batch in enumerate(buffer.get(6)):
        parts = batch._asdict()
        memory, seen = parts.pop("lstm_states"), parts.pop("observations")
        parts |= {f"seen/{key}": part for key, part in (seen if nested else {"": seen}).items()}
        parts |= {f"memory/{j}": state for j, state in enumerate((*memory.pi, *memory.vf))}
        results |= {f"{i}/{name}": tensor.numpy() for name, tensor in parts.items()}
    return results


def everything(policies: Any, buffers: Any, aliases: Any) -> dict[str, np.ndarray]:
    """All of these arrays."""
    results = {"cut": cut(buffers)}
    results |= {f"{memory}/{env}": judged(policies, aliases, memory, env) for memory in POLICIES for env in ENVS}
    results |= {f"rollout/{nested}": rolled_out(buffers, aliases, nested) for nested in (False, True)}
    return {f"{part}/{name}": array for part, arrays in results.items() for name, array in arrays.items()}


if __name__ == "__main__":
    from sb3_contrib.common.recurrent import buffers, policies, type_aliases

    np.savez_compressed(DATA / "recurrent.npz", **everything(policies, buffers, type_aliases))
