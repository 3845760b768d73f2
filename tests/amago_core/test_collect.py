"""What the collector stores, compared with rollouts written by hand."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from amago_core.agent import Agent
from amago_core.collect import Collector
from amago_core.config import Rollout
from amago_core.sequences import Batch, Packing, Timesteps


class Script(VectorEnv):
    """Slot b plays rollouts of `lengths[b]` steps. Observation (b, rollout, t), reward 100 b + 10 rollout + t.

    Its last step sets the flags of `ending`; the second step of each rollout begins an inner episode. It writes down
    the actions that it gets, and reuses its observation buffer as careless environments do.
    """

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012

    def __init__(self, lengths: list[int], ending: str = "truncated", action_space: Any = None) -> None:
        self.num_envs, self.lengths, self.ending = len(lengths), np.array(lengths), ending
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.single_action_space = action_space or spaces.Discrete(4)
        self.observation = np.zeros((len(lengths), 3), np.float32)
        self.observation[:, 0] = np.arange(len(lengths))
        self.observation[:, 1] = -1
        self.actions: list[np.ndarray] = []
        self.over = np.ones(len(lengths), bool)

    def reset(self, *, seed: Any = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        assert self.over[mask].all(), "a rollout under way was reset"
        self.observation[mask, 1] += 1
        self.observation[mask, 2] = 0
        self.over = self.over & ~mask
        return self.observation, {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:
        assert not self.over.any(), "a finished rollout was stepped"
        self.actions.append(actions.copy())
        self.observation[:, 2] += 1
        self.over = self.observation[:, 2] == self.lengths
        reward = self.observation @ np.array([100, 10, 1], np.float32)
        terminated, truncated = (self.over if name in self.ending else np.zeros_like(self.over) for name in
                                 ("terminated", "truncated"))  # fmt: skip
        return self.observation, reward, terminated, truncated, {"inner_reset": self.observation[:, 2] == 2}


class Shelf:
    """A replay that keeps everything."""

    def __init__(self) -> None:
        self.rollouts: list[Timesteps] = []

    def add(self, rollout: Timesteps) -> None:
        self.rollouts.append({name: field.copy() for name, field in rollout.items()})


def play(agent: Agent, envs: Script, steps: int) -> list[Timesteps]:
    shelf = Shelf()
    Collector(envs, agent, shelf, np.random.SeedSequence(0)).collect(steps)
    return shelf.rollouts


def of_slot(rollouts: list[Timesteps], slot: int) -> list[Timesteps]:
    return [r for r in rollouts if r["observation"][0, 0] == slot]


@pytest.mark.parametrize("space", [spaces.Discrete(4, start=1), spaces.Box(-2, 2, (2,), np.float32)])
def test_stored_tokens_equal_the_rollouts_that_were_played(space: spaces.Space, make_agent: Callable) -> None:
    envs = Script([2, 3], action_space=space)
    agent = make_agent(space)
    rollouts = play(agent, envs, 6)
    played = np.stack(envs.actions)
    for slot, length in enumerate(envs.lengths):
        mine = of_slot(rollouts, slot)
        assert len(mine) == 6 // length
        for number, rollout in enumerate(mine):
            t = np.arange(length + 1)
            assert rollout["observation"].tolist() == [[slot, number, k] for k in t]  # the terminal one of this rollout
            assert rollout["reward"].tolist() == [0, *(100 * slot + 10 * number + t[1:])]
            assert rollout["terminal"].tolist() == [False] * length + [True]
            assert rollout["reset"].tolist() == [k in (0, 2) for k in t]
            assert (rollout["action"][0] == agent.actions.blank).all()  # no action yet is no action of the space
            executed = agent.actions.to_env(rollout["action"][1:])
            np.testing.assert_array_equal(executed, played[number * length : (number + 1) * length, slot])


def test_as_many_transitions_are_stored_as_steps_were_made(make_agent: Callable) -> None:
    """Rollouts of one step appear, and no dead row after an end does."""
    rollouts = play(make_agent(), Script([1, 3]), 14)
    assert [len(r["reward"]) - 1 for r in of_slot(rollouts, 0)] == [1] * 14
    assert [len(r["reward"]) - 1 for r in of_slot(rollouts, 1)] == [3] * 4


@pytest.mark.parametrize(
    ("finite", "ending", "terminal"),
    [
        (True, "truncated", True), (True, "terminated", True), (True, "terminated truncated", True),
        (False, "truncated", False), (False, "terminated", True), (False, "terminated truncated", True),
    ],
)  # fmt: skip
def test_which_ends_cut_the_value(finite: bool, ending: str, terminal: bool, make_agent: Callable) -> None:
    """Finite: the horizon does. Artificial: true ends only, and termination wins where both flags are set."""
    agent = make_agent()
    agent.rollout = Rollout(20, finite)
    (rollout,) = play(agent, Script([3], ending), 3)
    assert rollout["terminal"].tolist() == [False, False, False, terminal]


@pytest.mark.parametrize("settings", [{}, {"context": 7}, {"sequence_model": "gru"}, {"sequence_model": "memoryless"}])
@pytest.mark.parametrize("space", [spaces.Discrete(4), spaces.Box(-1, 1, (2,), np.float32)])
def test_policies_in_collection_are_those_of_learning(
    space: spaces.Space, settings: dict, make_agent: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory lives from the first to the last step of a rollout, through inner resets and through
    a pause between two calls, so a forward pass over the stored rollout gives the same policies, if none of its
    transitions is beyond the context."""
    agent, envs, shelf = make_agent(space, **settings), Script([5, 7, 2], action_space=space), Shelf()
    policies: list[torch.Tensor] = []
    act = agent.actor_critic.act
    monkeypatch.setattr(agent.actor_critic, "act", lambda p, *rest: (policies.append(p.clone()), act(p, *rest))[1])
    collector = Collector(envs, agent, shelf, np.random.SeedSequence(0))
    for steps in (3, 1, 10):  # 14 steps in three phases
        collector.collect(steps)

    axis = 0 if agent.actions.discrete else 1  # policies [B, A] or [2, B, A]
    for slot, length in enumerate(envs.lengths):
        acted = torch.stack([p.select(axis, slot) for p in policies])
        for number, rollout in enumerate(of_slot(shelf.rollouts, slot)):
            with torch.no_grad():
                learned = agent.actor_critic.policy(agent.eval().states(as_batch(rollout)))
            learned = learned if agent.actions.discrete else learned.transpose(0, 1)
            got = acted[number * length : (number + 1) * length]
            torch.testing.assert_close(got, learned[:-1], atol=2e-5, rtol=1e-4)


def as_batch(rollout: Timesteps) -> Batch:
    length = len(rollout["reward"])
    return Batch(Packing([length]), torch.arange(length), {name: torch.from_numpy(f) for name, f in rollout.items()})


def test_rollouts_longer_than_the_first_buffer(make_agent: Callable) -> None:
    agent = make_agent(sequence_model="memoryless", horizon=600)
    (rollout,) = play(agent, Script([600, 601]), 600)
    assert rollout["observation"][:, 2].tolist() == list(range(601))


def test_exploration_acts_and_is_what_gets_stored(make_agent: Callable) -> None:
    """A policy that always takes action 0, explored with epsilon 1: the stored actions are the random ones."""
    agent = make_agent(sample_actions=False, corridor_epsilon=1.0, corridor_ends=(0, 0))
    with torch.no_grad():
        agent.actor_critic.actor[-1].weight.zero_()
        agent.actor_critic.actor[-1].bias.copy_(torch.tensor([5.0, 0, 0, 0]).repeat(3))
    rollouts = play(agent, Script([5] * 20), 20)
    stored = np.concatenate([r["action"][1:] for r in rollouts])
    assert np.bincount(stored, minlength=4).min() > 60  # 100 of each are expected


def test_exploration_ends_when_it_is_annealed(make_agent: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy that always takes action 0; epsilon falls to 0 over the first ten steps, two rollouts."""
    agent = make_agent(epsilon_start=(1.0, 0.0), epsilon_end=(1.0, 0.0), anneal_steps=10)
    monkeypatch.setattr(agent.actor_critic, "act", lambda policy, rng, sample: np.zeros(len(policy), np.int64))
    rollouts = play(agent, Script([5] * 20), 20)
    explored = {int(r["observation"][0, 1]) for r in rollouts if r["action"][1:].any()}
    assert len(rollouts) == 80 and explored == {0, 1}


def test_exploration_grows_over_the_rollouts_of_the_task(make_agent: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Epsilon from 0 at the first step to the multiplier at the last of 20, in a policy that always takes action 0."""
    agent = make_agent(horizon=20, epsilon_start=(0.0, 0.0), epsilon_end=(1.0, 1.0))
    monkeypatch.setattr(agent.actor_critic, "act", lambda policy, rng, sample: np.zeros(len(policy), np.int64))
    rollouts = play(agent, Script([20] * 50), 200)
    other = np.mean([rollout["action"][1:] != 0 for rollout in rollouts], axis=0)  # of 4 actions, at each of 20 steps
    # The multiplier has mean 1/2, and a random action is another one in 3 of 4 cases.
    np.testing.assert_allclose(other, 0.5 * 0.75 * np.arange(20) / 20, atol=0.08)


def test_collecting_is_in_evaluation_mode(make_agent: Callable) -> None:
    """No dropout, no moving statistics while acting."""
    agent = make_agent(dropout=0.5)
    agent.train()
    before = {k: v.clone() for k, v in agent.state_dict().items()}
    play(agent, Script([3]), 6)
    assert not agent.training
    torch.testing.assert_close(agent.state_dict(), before, rtol=0, atol=0)


def test_an_environment_that_resets_itself_is_refused(make_agent: Callable) -> None:
    envs = Script([3])
    envs.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
    with pytest.raises(ValueError, match="needs autoreset disabled"):
        Collector(envs, make_agent(), Shelf(), np.random.SeedSequence(0))
