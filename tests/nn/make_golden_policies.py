"""Writes golden_policies.json by building the cases of policy_cases.py in Stable-Baselines3.

Run it, when the cases change, with a Python that has Stable-Baselines3: ``python -m tests.nn.make_golden_policies``.
The tests read only the file.
"""

import json
import pathlib

import torch

from tests.nn.policy_cases import ACTIONS, CASES, OBSERVATIONS, SEED, outputs, summary


def peer_class(family: str, policy: str) -> type:
    from stable_baselines3 import DQN, PPO, SAC, TD3

    return {"ppo": PPO, "sac": SAC, "td3": TD3, "dqn": DQN}[family].policy_aliases[policy]


def main() -> None:
    torch.set_num_threads(1)
    golden = {}
    for name, (family, policy, obs, act, kwargs) in CASES.items():
        kwargs = dict(kwargs)
        if "activation_fn" in kwargs:
            kwargs["activation_fn"] = getattr(torch.nn, kwargs["activation_fn"])
        torch.manual_seed(SEED)
        built = peer_class(family, policy)(OBSERVATIONS[obs], ACTIONS[act], lambda _: 1e-3, **kwargs)
        golden[name] = {
            "state": summary(built),
            "outputs": outputs(built, family, OBSERVATIONS[obs], ACTIONS[act]),
        }
    path = pathlib.Path(__file__).with_name("golden_policies.json")
    path.write_text(json.dumps(golden, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
