"""What offline learners reach on a HalfCheetah set of one's own, beside d3rlpy on the same rows.

    python benchmarks/offline_scores.py                                       # some hours on two cores
    python benchmarks/offline_scores.py --steps 2000 --rows 2000 --updates 100   # does it run?

SAC acts for ``--steps`` steps. Of its policies on the way, the one whose return is closest to half of the last one's
records ``--rows`` steps. From these each learner takes ``--updates`` gradient steps, in a fresh process, with its
library's defaults (but for :data:`SETTINGS`) and two hidden layers of 256 units. Returns are means over 20 episodes.
Those that can go on by acting then do so for ``--online`` steps.

Rows that are finished are kept in ``results/offline-scores.json``: the program goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from command_line import add_choice, add_out, at_least
from offline_calls import mean_return
from processes import run_worker, stop_workers_with_me
from reports import machine, versions_line, write

ENV = "HalfCheetah-v5"
LEARNERS = ("BC", "TD3BC", "IQL", "CQL", "ReBRAC", "EDAC", "AWAC")
LIBRARIES = ("polyak", "d3rlpy")
PEERS = ("BC", "TD3BC", "IQL", "CQL", "ReBRAC")
"""Those that d3rlpy has as well."""
SETTINGS: dict[tuple[str, str], dict[str, Any]] = {
    ("polyak", "CQL"): {"n_action_samples": 4},
    ("d3rlpy", "CQL"): {"n_action_samples": 4},
    ("polyak", "ReBRAC"): {"actor_bc_coef": 0.001},
}
"""What differs from the defaults of a library: 10 sampled actions of each kind take three times as long, and d3rlpy's
ReBRAC has the weight that its authors chose for this task by default. Minibatches have 256 transitions everywhere."""


def record(steps: int, rows: int, seed: int, file: Path) -> dict[str, Any]:
    """Write a set of half-trained behaviour; returns what is known of it."""
    from polyak import SAC
    from polyak.experience import collect

    agent = SAC("MlpPolicy", ENV, seed=seed, device="cpu")
    policies = []
    for _ in range(10):
        agent.learn(steps // 10, reset_num_timesteps=False)
        weights = {name: array.clone() for name, array in agent.policy.state_dict().items()}
        score = mean_return(lambda observation: agent.predict(observation, deterministic=True)[0], 3)
        policies.append((score, weights))
        print(f"{agent.num_timesteps} steps: {score:.0f}", flush=True)
    last = policies[-1][0]
    score, weights = min(policies, key=lambda policy: abs(policy[0] - last / 2))
    agent.policy.load_state_dict(weights)
    data = collect(ENV, agent, rows, deterministic=False, whole_episodes=True, seed=1)
    ends = data.ends - 1
    names = ("observations", "actions", "rewards", "next_observations")
    columns = {name: np.asarray(getattr(data.transitions(), name)) for name in names}
    flags = {name: np.zeros(len(data), bool) for name in ("terminals", "timeouts")}
    flags["terminals"][ends], flags["timeouts"][ends] = data.terminated, ~data.terminated
    np.savez(file, **columns, **flags)
    return {"rows": len(data), "behaviour": float(data.returns.mean()), "policy": score, "agent": last}


def markdown(report: dict[str, Any]) -> Iterator[str]:
    """The report's lines."""
    about = report["set"]
    yield "# What offline learners reach"
    yield ""
    yield (
        f"{ENV}, {about['rows']:,} steps of a SAC policy, whose episodes return {about['behaviour']:.0f} on average "
        f"(the agent ended at {about['agent']:.0f}). {report['updates']:,} updates, seeds {report['seeds']}, mean "
        f"return of 20 episodes; then {report['online']:,} steps online. {report['machine']['processor']}."
    )
    yield ""
    yield "| | library | offline, each seed | online, first and last |"
    yield "|---|---|---:|---:|"
    for algo in LEARNERS:
        for library in LIBRARIES:
            runs = [run for run in report["runs"] if (run["algo"], run["library"]) == (algo, library)]
            if runs:
                offline = ", ".join(f"{run['offline']:.0f}" for run in runs)
                online = ", ".join("{:.0f} -> {:.0f}".format(*run["online"]) for run in runs if run["online"])
                yield f"| {algo} | {library} | {offline} | {online or '-'} |"
    yield ""
    yield versions_line({run["library"]: run["versions"] for run in report["runs"]})


def jobs(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What is to be run."""
    for seed in args.seeds:
        for algo in args.algos:
            for library in args.libs:
                if library == "polyak" or algo in PEERS:
                    yield {
                        "library": library,
                        "algo": algo,
                        "seed": seed,
                        "settings": SETTINGS.get((library, algo), {}),
                    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Returns of offline learners in polyak and d3rlpy.")
    add_choice(parser, "--algos", list(LEARNERS))
    add_choice(parser, "--libs", list(LIBRARIES))
    add = parser.add_argument
    add("--steps", type=at_least(100), default=100_000, help="environment steps of the agent that is recorded")
    add("--agent", type=int, default=0, help="its seed: some of them never get beyond 1,400")
    add("--rows", type=at_least(1000), default=100_000, help="steps that are recorded")
    add("--updates", type=at_least(1), default=50_000, help="gradient steps of each learner")
    add("--online", type=int, default=20_000, help="environment steps that follow; 0: none")
    add("--seeds", type=int, nargs="+", default=[0], help="one training of each learner for each")
    add("--threads", type=at_least(1), default=1, help="compute threads of each run")
    add_out(parser, "offline-scores")
    args = parser.parse_args()
    stop_workers_with_me()
    file = args.out.with_suffix(".npz")
    file.parent.mkdir(parents=True, exist_ok=True)
    asked = {name: getattr(args, name) for name in ("steps", "agent", "rows", "updates", "online")}
    notes = args.out.with_suffix(".json")
    report = json.loads(notes.read_text()) if notes.exists() else {}
    if {name: report.get(name) for name in asked} != asked or not file.exists():
        report = {"machine": machine(), **asked, "set": record(args.steps, args.rows, args.agent, file), "runs": []}
    for job in jobs(args):
        done = any(all(run.get(name) == job[name] for name in job) for run in report["runs"])
        if not done:
            wanted = {"measure": "offline_score", **asked, **job, "file": str(file)}
            report["runs"].append({**job, **run_worker(job["library"], wanted, args.threads)})
            run = report["runs"][-1]
            print(f"{job}: {run['offline']:.0f} {run['online'] or ''} {run['updates_per_s']:.0f}/s", flush=True)
        report["seeds"] = sorted({run["seed"] for run in report["runs"]})
        text = write(report, markdown(report), args.out)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
