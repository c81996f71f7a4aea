"""A trained policy without the library: as TorchScript, as ONNX (if onnx is installed), and as plain numpy."""

import argparse
import importlib.util
import tempfile
from pathlib import Path

import numpy as np
import torch
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.policies import BasePolicy
from torch import Tensor, nn


class Acting(nn.Module):
    """The deterministic action of an actor-critic policy, before it is clipped to the bounds."""

    def __init__(self, policy: BasePolicy) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Actions, values and log-probabilities."""
        return self.policy(observation, deterministic=True)


def by_hand(weights: dict[str, np.ndarray], observation: np.ndarray) -> np.ndarray:
    """PPO's mean action by two tanh layers and a linear one."""
    hidden = observation
    for layer in (0, 2):
        name = f"mlp_extractor.policy_net.{layer}"
        hidden = np.tanh(hidden @ weights[f"{name}.weight"].T + weights[f"{name}.bias"])
    return hidden @ weights["action_net.weight"].T + weights["action_net.bias"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=256)
    parser.add_argument("--out", type=Path, help="folder for the files (default: a temporary one)")
    options = parser.parse_args()
    out = options.out or Path(tempfile.mkdtemp())
    out.mkdir(parents=True, exist_ok=True)

    model = PPO("MlpPolicy", "Pendulum-v1", n_steps=128, device="cpu", seed=0).learn(options.steps)
    observation = model.observation_space.sample()[None]
    acting = Acting(model.policy).eval()
    with torch.no_grad():
        expected = acting(torch.as_tensor(observation))[0].numpy()

    weights = {name: tensor.numpy() for name, tensor in model.policy.state_dict().items()}
    print("numpy agrees:", np.allclose(by_hand(weights, observation), expected, atol=1e-5))

    traced = torch.jit.trace(acting, torch.as_tensor(observation))
    traced.save(str(out / "ppo.pt"))
    again = torch.jit.load(str(out / "ppo.pt"))
    print("TorchScript agrees:", np.allclose(again(torch.as_tensor(observation))[0].detach().numpy(), expected))

    sac = SAC("MlpPolicy", "Pendulum-v1", learning_starts=50, device="cpu", seed=0).learn(100)
    actor = nn.Sequential(sac.actor.latent_pi, sac.actor.mu, nn.Tanh())  # what acts, without its Gaussian
    scaled = actor(torch.as_tensor(observation)).detach().numpy()
    actions = sac.policy.unscale_action(scaled)
    print("SAC's actor agrees:", np.allclose(actions, sac.predict(observation, deterministic=True)[0], atol=1e-5))

    if importlib.util.find_spec("onnx") is None or importlib.util.find_spec("onnxscript") is None:
        print("onnx or onnxscript is not installed: no ONNX file")
        return
    torch.onnx.export(acting, (torch.as_tensor(observation),), str(out / "ppo.onnx"), input_names=["observation"])
    print("ONNX:", (out / "ppo.onnx").exists())


if __name__ == "__main__":
    main()
