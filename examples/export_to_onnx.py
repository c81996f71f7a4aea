"""Export a policy, normalisation included, to one ONNX file, and act with numpy and onnxruntime alone."""

import json

import gymnasium as gym
import numpy as np
import onnxruntime

from polyak import PPO, VecNormalize, make_vec_env


def main(steps: int = 10_000) -> float:
    envs = VecNormalize(make_vec_env("Pendulum-v1", n_envs=4, seed=0), gamma=0.9)
    model = PPO("MlpPolicy", envs, n_steps=128, gamma=0.9, seed=0, device="cpu").learn(steps)
    model.export("policy.onnx")
    model.save("policy")

    session = onnxruntime.InferenceSession("policy.onnx", providers=["CPUExecutionProvider"])
    about = json.loads(session.get_modelmeta().custom_metadata_map["polyak"])
    print("in:", [port["name"] for port in about["inputs"]], "out:", [port["name"] for port in about["outputs"]])

    env = gym.make("Pendulum-v1")
    observation, _ = env.reset(seed=1)
    agent, largest = PPO.load("policy", device="cpu"), 0.0
    for _ in range(100):
        [actions] = session.run(["action"], {"observation": observation[None]})  # a batch of one
        expected, _ = agent.predict(observation, deterministic=True)
        largest = max(largest, float(np.abs(actions[0] - expected).max()))
        observation, *_ = env.step(actions[0])
    print(f"largest difference from predict: {largest:.1e}")
    return largest


if __name__ == "__main__":
    main()
