"""Writes golden_policies.json by building the cases of policy_cases.py in Stable-Baselines3 and sb3-contrib.

Run it, when the cases change, with a Python that has both: ``python -m tests.nn.make_golden_policies``,
followed by the names of some cases to leave the others as they are. The tests read only the file.
"""

import json
import pathlib
import sys

import torch

from tests.nn.policy_cases import ACTIONS, CASES, OBSERVATIONS, SEED, outputs, summary


def peer_class(family: str, policy: str) -> type:
    from sb3_contrib import TQC
    from stable_baselines3 import DQN, PPO, SAC, TD3

    return {"ppo": PPO, "sac": SAC, "td3": TD3, "dqn": DQN, "tqc": TQC}[family].policy_aliases[policy]


def main(*names: str) -> None:
    torch.set_num_threads(1)
    path = pathlib.Path(__file__).with_name("golden_policies.json")
    golden = json.loads(path.read_text(encoding="utf-8")) if names else {}
    for name in names or CASES:
        family, policy, obs, act, kwargs = CASES[name]
        kwargs = dict(kwargs)
        if "activation_fn" in kwargs:
            kwargs["activation_fn"] = getattr(torch.nn, kwargs["activation_fn"])
        torch.manual_seed(SEED)
        built = peer_class(family, policy)(OBSERVATIONS[obs], ACTIONS[act], lambda _: 1e-3, **kwargs)
        golden[name] = {"state": summary(built), "outputs": outputs(built, family, OBSERVATIONS[obs], ACTIONS[act])}
    path.write_text(json.dumps(golden, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
