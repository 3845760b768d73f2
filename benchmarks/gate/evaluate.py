"""Evaluation: a fixed number of rollouts, the same hidden instances and seeds for every agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from gymnasium.vector import VectorEnv

from amago_core.seeding import child
from benchmarks.agents.protocol import Agent, ContractError, VectorStep
from benchmarks.gate.harness_env import HarnessEnv

if TYPE_CHECKING:
    from benchmarks.task import Success, Task

FINAL_ROLLOUTS = 100  # the standard error of a success rate is then 0.05 at most
INTERMEDIATE_ROLLOUTS = 20  # 0.11: enough for a curve and for the stop rule, at a fifth of the cost
SLOTS = 20  # fixed, because seeds depend on slot and rollout: another number would mean other rollouts


@dataclass(frozen=True, slots=True)
class EpisodeRecord:
    """One inner episode of an evaluation rollout. `finished`: it ended by itself, not cut off by any time limit."""

    slot: int
    rollout: int  # of this slot
    episode: int  # of this rollout
    instance: str
    episode_return: float
    episode_length: int
    success_any: bool | None  # at any step; None where the environment reports no success
    success_last: bool | None  # at the last step
    finished: bool


@dataclass(frozen=True)
class Summary:
    """Statistics over whole rollouts: their returns, and the share of those with a success as the task declares it."""

    return_mean: float
    return_median: float
    return_q1: float
    return_q3: float
    success_mean: float | None
    rollouts: int


def evaluation_seeds(task_id: str, which: int | Literal["final"], split: str = "same") -> np.random.SeedSequence:
    """The root of an evaluation's seeds, which depends on the task, the evaluation and the split, never on the run."""
    names = () if split == "same" else (split,)
    return child(0, task_id, "evaluate", *names, which)


def evaluate(
    agent: Agent,
    task: Task,
    seeds: np.random.SeedSequence,
    rollouts: int = FINAL_ROLLOUTS,
    slots: int = SLOTS,
    envs: VectorEnv | None = None,
    *,
    split: str | None = None,
    run_seed: int = 0,
) -> list[EpisodeRecord]:
    """Play `rollouts` rollouts, the same number in each slot; return their inner episodes sorted by slot and rollout.

    Memory is kept from the first to the last step of a rollout. Countable instances are balanced to within one.
    `seeds` are common to all agents and runs, but `run_seed` gives the policy of each run its own draws: otherwise all
    runs of the random agent would be the same. `envs` is an environment of the task with `slots` slots to reuse;
    without it one of the `split` (default: the task's headline) is made and closed.
    Raises ValueError if the slots cannot share the rollouts equally, and whatever `HarnessEnv` raises.
    """
    if rollouts < 1 or slots < 1 or rollouts % slots:
        raise ValueError(f"{slots} slots cannot share {rollouts} rollouts equally")
    env = HarnessEnv(envs or task.build(slots, split or task.headline_split), task, seeds, "evaluate")
    try:
        return _play(agent, env, rollouts // slots, np.random.default_rng(child(seeds, "policy", run_seed)))
    finally:
        if envs is None:
            env.close()


def summarise(episodes: Sequence[EpisodeRecord], success: Success = "any_step") -> Summary:
    """The statistics of the rollouts that the episodes belong to, in which each rollout's are in order."""
    rollouts: dict[tuple[int, int], list[EpisodeRecord]] = {}
    for e in episodes:
        rollouts.setdefault((e.slot, e.rollout), []).append(e)
    values = np.array([sum(e.episode_return for e in rollout) for rollout in rollouts.values()])
    successes = [_succeeded(rollout, success) for rollout in rollouts.values() if rollout[-1].success_any is not None]
    q1, median, q3 = np.percentile(values, [25, 50, 75])
    return Summary(
        return_mean=float(values.mean()),
        return_median=float(median),
        return_q1=float(q1),
        return_q3=float(q3),
        success_mean=float(np.mean(successes)) if successes else None,
        rollouts=len(values),
    )


def _succeeded(rollout: Sequence[EpisodeRecord], success: Success) -> bool:
    if success == "any_step":
        return any(e.success_any for e in rollout)
    last = rollout[-1]
    return bool(last.success_last if success == "last_step" else last.success_any)


def _play(agent: Agent, env: HarnessEnv, per_slot: int, rng: np.random.Generator) -> list[EpisodeRecord]:
    log = _EpisodeLog(env, per_slot)
    everyone = np.ones(env.num_envs, bool)
    observation, infos = _reset(env, everyone)
    step = VectorStep(observation, np.zeros(env.num_envs, np.float32), everyone, infos["inner_reset"])
    memory: Any = None
    while True:
        answer = agent.act(step, memory, rng)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise ContractError(f"act() must return (actions, memory), it returned {type(answer).__name__}")
        actions, memory = answer
        observation, reward, terminated, truncated, infos = env.step(actions)
        done = terminated | truncated
        inner_reset = infos["inner_reset"]
        log.add(reward, terminated, done, infos)
        if done.any():
            if log.complete():
                return log.episodes()
            # A slot that has played its share keeps playing, uncounted, until the others are done: all must step.
            observation, _ = _reset(env, done)
            reward = np.where(done, np.float32(0), reward)
            inner_reset = inner_reset & ~done
        step = VectorStep(observation, reward, done, inner_reset)


def _reset(env: HarnessEnv, mask: np.ndarray) -> tuple[Any, dict[str, Any]]:
    options: dict[str, Any] = {"reset_mask": mask}
    if env.task.instances is not None:
        options["instance"] = (env.rollouts * env.num_envs + np.arange(env.num_envs)) % env.task.instances
    return env.reset(options=options)


class _EpisodeLog:
    """Adds up all slots at once, so that only the end of an episode needs a loop in Python."""

    def __init__(self, env: HarnessEnv, per_slot: int) -> None:
        self._env, self._per_slot = env, per_slot
        slots = env.num_envs
        self._return = np.zeros(slots)  # float64: thousands of small rewards
        self._length = np.zeros(slots, np.int64)
        self._any = np.zeros(slots, bool)
        self._episode = np.zeros(slots, np.int64)
        self._knows_success = False
        self._episodes: list[EpisodeRecord] = []

    def add(self, reward: np.ndarray, terminated: np.ndarray, done: np.ndarray, infos: dict[str, Any]) -> None:
        success = infos.get("success")
        self._return += reward
        self._length += 1
        if success is not None:
            self._knows_success = True
            self._any |= success
        inner_reset = infos["inner_reset"]
        ended = inner_reset | done
        if not ended.any():
            return
        slots = np.flatnonzero(ended)
        for slot in slots[self._env.rollouts[slots] <= self._per_slot].tolist():
            self._episodes.append(
                EpisodeRecord(
                    slot=slot,
                    rollout=int(self._env.rollouts[slot]) - 1,
                    episode=int(self._episode[slot]),
                    instance=self._env.instance[slot],
                    episode_return=float(self._return[slot]),
                    episode_length=int(self._length[slot]),
                    success_any=bool(self._any[slot]),
                    success_last=bool(success is not None and success[slot]),
                    finished=bool(terminated[slot] or (inner_reset[slot] and not infos["inner_truncated"][slot])),
                )
            )
        self._return[slots], self._length[slots], self._any[slots] = 0.0, 0, False
        self._episode[slots] = np.where(done[slots], 0, self._episode[slots] + 1)

    def complete(self) -> bool:
        """Whether every slot has finished its share; to be called between the end of a rollout and its reset."""
        done = self._env.needs_reset
        return bool((self._env.rollouts - ~done >= self._per_slot).all())

    def episodes(self) -> list[EpisodeRecord]:
        ordered = sorted(self._episodes, key=lambda e: (e.slot, e.rollout, e.episode))
        if self._knows_success:
            return ordered
        return [replace(e, success_any=None, success_last=None) for e in ordered]
