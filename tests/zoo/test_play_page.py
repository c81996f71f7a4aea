"""The environments of the page that plays agents in the browser are Gymnasium's."""

import json
import shutil
import subprocess
from pathlib import Path

import gymnasium
import numpy as np
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "play"
NODE = shutil.which("node")
PROGRAM = """
import {environments} from "./environments.mjs";
let text = "";
for await (const part of process.stdin) text += part;
const found = JSON.parse(text).map(({env, start, actions}) => {
  let state = start;
  return actions.map(action => {
    const [next, reward, terminated] = environments[env].step(state, action);
    state = next;
    return [...state, ...environments[env].observe(state), reward, Number(terminated)];
  });
});
const starts = Object.values(environments).map(one => [one.limit, one.fps, one.start(() => 0), one.start(() => 1)]);
console.log(JSON.stringify([found, starts]));
"""
ENVS = ("CartPole-v1", "Pendulum-v1", "MountainCar-v0", "Acrobot-v1")
STEPS = 60


@pytest.mark.skipif(NODE is None, reason="needs Node.js")
def test_rollouts_are_those_of_gymnasium() -> None:
    """As far as 64 bits go: round-off of 1e-16 a step, which the motions enlarge by less than a factor of 1e6."""
    asked, wanted, limits = [], [], []
    for env_id in ENVS:
        for seed in range(3):
            env = gymnasium.make(env_id)
            env.action_space.seed(seed)
            env.reset(seed=seed)
            start = np.asarray(env.unwrapped.state, np.float64)  # type: ignore[attr-defined]
            env.unwrapped.state = start  # type: ignore[attr-defined]
            actions, rows = [], []
            for _ in range(STEPS):
                action = env.action_space.sample() if seed else env.action_space.sample() * 0
                if isinstance(action, np.ndarray):
                    action = action.astype(np.float64)  # torques have 32 bits otherwise, and so the motion
                observation, reward, terminated, *_ = env.unwrapped.step(action)
                state = np.asarray(env.unwrapped.state, np.float64)  # type: ignore[attr-defined]
                rows.append([*state, *observation, float(reward), float(terminated)])
                actions.append(np.asarray(action).item())
                if terminated:
                    break
            asked.append({"env": env_id, "start": start.tolist(), "actions": actions})
            wanted.append(rows)
        limits.append([env.spec.max_episode_steps, env.metadata["render_fps"]])
    command = [str(NODE), "--input-type=module", "-e", PROGRAM]
    done = subprocess.run(command, cwd=PAGE, input=json.dumps(asked), capture_output=True, text=True, check=True)
    found, starts = json.loads(done.stdout)
    for question, ours, theirs in zip(asked, found, wanted, strict=True):
        n = len(question["start"])
        np.testing.assert_allclose(np.array(ours)[:, :n], np.array(theirs)[:, :n], rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)  # observations have 32 bits
    assert [start[:2] for start in starts] == limits
    for env_id, (*_, low, high) in zip(ENVS, starts, strict=True):
        for seed in range(20):
            env = gymnasium.make(env_id)
            env.reset(seed=seed)
            state = np.asarray(env.unwrapped.state)  # type: ignore[attr-defined]
            assert np.all(np.array(low) - 1e-7 <= state)
            assert np.all(state <= np.array(high) + 1e-7)
