import dataclasses

import numpy as np
import pytest
from gymnasium.utils.seeding import np_random
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.testing import assert_array_equal

from benchmarks.agents.protocol import ContractError
from benchmarks.agents.random import Random
from benchmarks.catalog import get_task
from benchmarks.gate.evaluate import EpisodeRecord, evaluate, evaluation_seeds, summarise
from benchmarks.gate.harness_env import HarnessEnv, instance_name, rollout_seeds

SEEDS = evaluation_seeds("test/toy/a", "final")


class Policy:
    """Plays `choose(step)` and keeps every step that it was shown."""

    def __init__(self, choose=None):
        self.choose = choose or (lambda step: np.zeros(len(step.first), np.int64))
        self.steps, self.memories = [], []

    def act(self, step, memory, rng):
        self.steps.append(step)
        self.memories.append(memory)
        return self.choose(step), (memory or 0) + 1


def play(task, agent=None, rollouts=4, slots=2, seeds=SEEDS):
    return evaluate(agent or Policy(), task, seeds, rollouts, slots)


def columns(episodes, *names):
    return [tuple(getattr(e, name) for name in names) for e in episodes]


def test_success_at_any_step_and_at_the_last(toys):
    success = [None, False, True, False]
    task = toys.scripted(lambda t: (0.0, t == 3, False, {"success": success[t]}))
    episodes = play(task)
    assert columns(episodes, "success_any", "success_last") == [(True, False)] * 4
    assert summarise(episodes).success_mean == 1.0


@pytest.mark.parametrize(
    ("success_at", "means"), [(1, (1, 0, 0)), (4, (1, 0, 1)), (5, (1, 1, 1)), (9, (0, 0, 0))]
)  # fmt: skip
def test_which_success_counts_is_the_tasks_choice(toys, success_at, means):
    """Rollouts of 5 steps with an inner reset after the second: steps 3 to 5 are the last inner episode."""
    script = lambda t: (0.0, False, False, {"inner_reset": t == 2, "success": t == success_at})  # noqa: E731
    episodes = play(toys.scripted(script, horizon=5))
    rules = ("any_step", "last_step", "last_episode")
    assert tuple(summarise(episodes, rule).success_mean for rule in rules) == means


def test_an_inner_time_limit_finishes_no_episode(toys):
    script = lambda t: (0.0, t == 6, False, {"inner_reset": t in (2, 4), "inner_truncated": t == 4})  # noqa: E731
    episodes = play(toys.scripted(script, horizon=6), rollouts=2)
    assert columns(episodes, "episode", "finished") == [(0, True), (1, False), (2, True)] * 2


def test_an_instance_may_be_any_record(toys):
    """Its name in the rows is a hash that depends on what it holds and on nothing else."""
    ids = iter(range(100))

    def make(num_envs):
        class Rooms(toys.answering):
            def reset(self, *, seed=None, options=None):
                observation, infos = super().reset(seed=seed, options=options)
                self.rooms = [{"goal": [next(ids) % 2, 3], "size": 5} for _ in range(num_envs)]
                return observation, infos | {"instance": self.rooms}

            def step(self, actions):
                *answer, infos = super().step(actions)
                return *answer, infos | {"instance": self.rooms}

        no = np.zeros(num_envs, bool)
        zeros = np.zeros((num_envs, 2), np.float32)
        space = toys.scripted(None).make(1).single_observation_space
        return Rooms(num_envs, space, lambda t: (zeros, np.zeros(num_envs), no, no, {}))

    episodes = play(toys.task(make, horizon=2), rollouts=4)
    names = [e.instance for e in episodes]
    assert len(set(names)) == 2
    assert instance_name({"size": 5, "goal": [0, 3]}) in names and len(names[0]) == 16
    assert (instance_name(7), instance_name(np.int64(7))) == ("7", "7")


def test_no_success_reported_is_none_and_not_false(toys):
    episodes = play(toys.scripted(lambda t: (0.0, t == 3, False, {})))
    assert columns(episodes, "success_any", "success_last") == [(None, None)] * 4
    assert summarise(episodes).success_mean is None


@pytest.mark.parametrize("length", [1, 3])
def test_the_counter_is_right_for_every_episode(toys, length):
    episodes = play(toys.scripted(lambda t: (1.0, t == length, False, {})), rollouts=14)
    assert columns(episodes, "episode_return", "episode_length") == [(length, length)] * 14
    assert columns(episodes, "slot", "rollout") == [(slot, rollout) for slot in range(2) for rollout in range(7)]


def test_one_step_episodes_in_every_second_rollout(toys):
    class Alternating:
        rollouts = 0

        def __call__(self, t):
            self.rollouts += t == 1
            return 1.0, self.rollouts % 2 == 1, False, {}

    def make(n):
        parts = [lambda: toys.scripted(Alternating()).make(1).envs[0]] * n
        return SyncVectorEnv(parts, autoreset_mode=AutoresetMode.DISABLED)

    episodes = play(toys.task(make, horizon=4), rollouts=8)
    assert columns(episodes, "episode_length") == [(1,), (4,), (1,), (4,)] * 2
    assert columns(episodes, "finished") == [(True,), (False,), (True,), (False,)] * 2


def test_every_slot_counts_equally_however_short_its_episodes(toys):
    def answer(t):  # slot 0 ends each step with 0, slot 1 pays 1 and runs to the horizon
        no = np.zeros(2, bool)
        return np.zeros((2, 2), np.float32), np.array([0, 1]), np.array([True, False]), no, {}

    task = toys.task(
        lambda n: toys.answering(n, toys.scripted(None).make(1).single_observation_space, answer), horizon=5
    )
    episodes = play(task, rollouts=4)
    assert columns(episodes, "slot", "rollout", "episode_return") == [(0, 0, 0), (0, 1, 0), (1, 0, 5), (1, 1, 5)]
    assert summarise(episodes).return_mean == 2.5


def test_inner_episodes_are_rows_of_one_rollout(toys):
    def script(t):
        return float(t), False, False, {"inner_reset": t in (1, 3), "success": t == 2}

    agent = Policy()
    episodes = play(toys.scripted(script, horizon=5), agent, rollouts=2)
    expected = [(0, 1.0, 1, False, True), (1, 5.0, 2, True, True), (2, 9.0, 2, False, False)]
    names = "episode", "episode_return", "episode_length", "success_any", "finished"
    assert columns(episodes, *names) == expected * 2
    summary = summarise(episodes)
    assert (summary.rollouts, summary.return_mean, summary.success_mean) == (2, 15.0, 1.0)
    assert [bool(step.inner_reset.all()) for step in agent.steps] == [False, True, False, True, False]


def test_an_inner_reset_on_the_last_step_adds_no_empty_episode(toys):
    agent = Policy()
    episodes = play(toys.scripted(lambda t: (1.0, False, False, {"inner_reset": t in (2, 4)}), horizon=4), agent)
    assert not any((step.first & step.inner_reset).any() for step in agent.steps)
    assert columns(episodes, "rollout", "episode", "episode_length", "finished")[:4] == [
        (0, 0, 2, True),
        (0, 1, 2, True),
        (1, 0, 2, True),
        (1, 1, 2, True),
    ]


def test_what_an_agent_is_shown_across_rollouts(toys):
    agent = Policy()
    play(toys.scripted(lambda t: (t / 10, False, False, {}), horizon=3), agent, rollouts=4)
    assert [bool(step.first.all()) for step in agent.steps] == [True, False, False, True, False, False]
    assert_array_equal([step.reward[0] for step in agent.steps], np.float32([0, 0.1, 0.2, 0, 0.1, 0.2]))
    assert_array_equal([step.observation[0, 1] for step in agent.steps], [0, 1, 2, 0, 1, 2])
    assert {step.reward.dtype for step in agent.steps} == {np.dtype(np.float32)}
    assert agent.memories == [None, 1, 2, 3, 4, 5]


class Recall:
    """Remembers the cue of the first observation and turns that way at the junction."""

    def act(self, step, memory, rng):
        cue = step.observation[:, 1]
        memory = np.where(step.first, cue, 0.0 if memory is None else memory)
        turn = np.where(memory > 0, 1, 3)
        return np.where(step.observation[:, 0] > 0, turn, 0), memory


def test_memory_lives_from_the_first_to_the_last_step_of_a_rollout():
    task = get_task("long_term_memory/tmaze/passive-30")
    seeds = evaluation_seeds(task.id, "final")
    assert summarise(evaluate(Recall(), task, seeds)).return_mean == 1.0


def test_instances_are_balanced():
    task = get_task("long_term_memory/tmaze/passive-10")
    episodes = evaluate(Recall(), task, SEEDS, 100, 20)
    assert [e.instance for e in episodes].count("0") == 50
    assert {e.instance for e in episodes} == {"0", "1"}
    odd = evaluate(Recall(), task, SEEDS, 15, 5)
    assert abs(sum(1 if e.instance == "1" else -1 for e in odd)) == 1


class Seeds(Policy):
    """Notes the environments' own first observations, which tell the seeds apart."""

    def seen(self):
        return {(slot, float(s.observation[slot, 0])) for s in self.steps for slot in np.flatnonzero(s.first)}


def test_evaluation_seeds_are_common_fixed_and_disjoint_from_training(toys):
    task = toys.scripted(lambda t: (1.0, t == 2, False, {}))
    one, other, earlier = Seeds(), Seeds(lambda step: np.ones(2, np.int64)), Seeds()
    play(task, one)
    play(task, other)
    play(task, earlier, seeds=evaluation_seeds(task.id, 0))
    assert one.seen() == other.seen()
    assert len(one.seen()) == 4
    assert not one.seen() & earlier.seen()
    for seed in range(5):
        env = HarnessEnv(task.make(2), task, np.random.SeedSequence(seed), "train")
        first = {(slot, float(env.reset()[0][slot, 0])) for _ in range(20) for slot in range(2)}
        assert not one.seen() & first


def test_rollouts_have_the_seeds_of_the_evaluating_role(toys):
    task, agent = toys.scripted(lambda t: (1.0, t == 2, False, {})), Seeds()
    play(task, agent)
    seeds = {slot: rollout_seeds(SEEDS, "evaluate", slot, 0)[:2].tolist() for slot in range(2)}
    assert agent.seen() == {(slot, float(np_random(s)[0].integers(1 << 20))) for slot in seeds for s in seeds[slot]}


def test_the_random_agent_repeats_itself():
    task = get_task("long_term_memory/tmaze/passive-10")
    agent = Random(type("Spec", (), {"action_space": task.make(1).single_action_space}))
    once, again = (evaluate(agent, task, SEEDS, 20, 20) for _ in range(2))
    other = evaluate(agent, task, evaluation_seeds(task.id, 3), 20, 20)
    assert once == again
    assert once != other


def test_runs_of_one_agent_draw_their_own_actions_on_common_rollouts():
    """Else all random agents would be one run, and their interval would have no width."""
    task = get_task("long_term_memory/tmaze/passive-10")
    agent = Random(type("Spec", (), {"action_space": task.make(1).single_action_space}))
    first, second, again = (evaluate(agent, task, SEEDS, 100, 20, run_seed=seed) for seed in (0, 1, 0))
    assert first == again
    assert [e.episode_return for e in first] != [e.episode_return for e in second]
    assert [(e.slot, e.rollout, e.instance) for e in first] == [(e.slot, e.rollout, e.instance) for e in second]


def test_an_environment_used_again_gives_the_same_rollouts():
    task = get_task("long_term_memory/tmaze/passive-10")
    arena = task.make(20)
    first, second = (evaluate(Recall(), task, SEEDS, 40, 20, arena) for _ in range(2))
    assert first == second == evaluate(Recall(), task, SEEDS, 40, 20)
    assert not arena.closed


def test_rollouts_that_the_slots_cannot_share(toys):
    with pytest.raises(ValueError, match="3 slots cannot share 100 rollouts equally"):
        play(toys.scripted(None), rollouts=100, slots=3)


@pytest.mark.parametrize("answer", [None, np.zeros(2), (1, 2, 3)])
def test_act_must_return_actions_and_memory(toys, answer):
    agent = Policy()
    agent.act = lambda step, memory, rng: answer
    with pytest.raises(ContractError, match=r"act\(\) must return \(actions, memory\)"):
        play(toys.scripted(lambda t: (0.0, False, False, {})), agent)


def test_summary_by_hand():
    blank = EpisodeRecord(0, 0, 0, "", 0.0, 1, False, False, True)
    returns = {(0, 0): [1.0, 2.0], (0, 1): [4.0], (1, 0): [8.0], (1, 1): [-1.0]}  # rollouts: 3, 4, 8, -1
    episodes = [
        dataclasses.replace(blank, slot=slot, rollout=r, episode=i, episode_return=value, success_any=value == 2.0)
        for (slot, r), values in returns.items()
        for i, value in enumerate(values)
    ]
    s = summarise(episodes)
    assert (s.return_mean, s.return_median, s.return_q1, s.return_q3) == (3.5, 3.5, 2.0, 5.0)
    assert (s.success_mean, s.rollouts) == (0.25, 4)
