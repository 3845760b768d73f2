"""POPGym against the installed package, against a table of its rules, and against chance.

What every task keeps (spaces, processes, global generators) is in test_contract.py, which has these 42 too.
"""

import sys

import gymnasium
import numpy as np
import popgym.envs
import pytest
import torch
from gymnasium import spaces

from amago_core.exploration import Exploration
from amago_core.spaces import ActionCodec, ObservationCodec
from benchmarks.agents.presets import configure
from benchmarks.catalog import get_task, match
from benchmarks.long_term_memory.popgym.env import PopgymEnv
from benchmarks.long_term_memory.popgym.tasks import PAPER_TASKS, TASKS
from results.errors import UserError

ALL = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id.split("/")[-1])

# Numbers the network sees, actions (0: one torque in [-2, 2]), steps; easy, medium, hard.
TABLE = {
    "Autoencode": ((6, 6, 6), (4, 4, 4), (103, 207, 311)),
    "Battleship": ((2, 2, 2), (64, 100, 144), (64, 100, 144)),
    "Concentration": ((156, 312, 728), (52, 104, 52), (104, 208, 104)),
    "CountRecall": ((4, 8, 26), (27, 27, 17), (51, 103, 207)),
    "HigherLower": ((13, 13, 13), (2, 2, 2), (51, 103, 155)),
    "MineSweeper": ((3, 7, 10), (16, 36, 64), (14, 30, 54)),
    "MultiarmedBandit": ((2, 2, 2), (10, 20, 30), (200, 400, 600)),
    "RepeatFirst": ((4, 4, 4), (4, 4, 4), (51, 415, 831)),
    "RepeatPrevious": ((4, 4, 4), (4, 4, 4), (51, 103, 155)),
    "PositionOnlyCartPole": ((2, 2, 2), (2, 2, 2), (200, 400, 600)),
    "PositionOnlyPendulum": ((2, 2, 2), (0, 0, 0), (200, 150, 100)),
    "NoisyPositionOnlyCartPole": ((2, 2, 2), (2, 2, 2), (200, 200, 200)),
    "NoisyPositionOnlyPendulum": ((2, 2, 2), (0, 0, 0), (200, 200, 200)),
    "VelocityOnlyCartPole": ((2, 2, 2), (2, 2, 2), (200, 400, 600)),
}
FIXED_LENGTH = ("Autoencode", "CountRecall", "HigherLower", "MultiarmedBandit", "Repeat", "Position", "NoisyPosition")


def name_of(task):
    return task.id.split("/")[-1]


def installed(task):
    return getattr(popgym.envs, name_of(task))()


def random_actions(space, steps, slots, seed=0):
    """What the core would store, [steps, slots] or [steps, slots, 1]."""
    codec, rng = ActionCodec(space), np.random.default_rng(seed)
    if codec.discrete:
        return rng.integers(codec.size, size=(steps, slots))
    return rng.uniform(-1, 1, (steps, slots, codec.size)).astype(np.float32)


def test_the_39_of_the_paper_and_3_more():
    names = {cls.__name__ for cls in popgym.envs.ALL if "Labyrinth" not in cls.__name__}  # those need another package
    assert {name_of(task) for task in TASKS} == names and len(TASKS) == 42
    assert len(PAPER_TASKS) == 39 and [name for name in names if f"long_term_memory/popgym/{name}" not in PAPER_TASKS]
    assert not any("VelocityOnly" in task_id for task_id in PAPER_TASKS)
    assert match("long_term_memory/popgym/*") == list(TASKS)


def test_dimensions_are_those_of_the_paper():
    found = {}
    for task in TASKS:
        env = PopgymEnv(1, name_of(task))
        actions = ActionCodec(env.single_action_space)
        if not actions.discrete:
            assert env.single_action_space == spaces.Box(-2.0, 2.0, (1,), np.float32)
        features = ObservationCodec(env.single_observation_space).features
        found[name_of(task)] = features, actions.size if actions.discrete else 0, task.horizon
    assert found == {
        family + level: tuple(column[i] for column in columns)
        for family, columns in TABLE.items()
        for i, level in enumerate(("Easy", "Medium", "Hard"))
    }


@ALL
def test_every_step_equals_the_installed_popgym(task):
    """Two slots that end apart; on the other side one new environment a rollout, flattened as in the paper."""
    env, single = PopgymEnv(2, name_of(task)), [installed(task), installed(task)]
    rows, codec = ObservationCodec(env.single_observation_space), ActionCodec(env.single_action_space)
    begun = [3, 4]  # the seeds of the rollouts under way

    def same(observation, expected):
        assert observation.dtype == env.single_observation_space.dtype
        features, _ = rows.expand({name: torch.from_numpy(field) for name, field in rows.store(observation).items()})
        flat = [spaces.flatten(one.observation_space, o) for one, o in zip(single, expected, strict=True)]
        assert np.array_equal(features.numpy(), np.array(flat, np.float32))

    expected = [one.reset(seed=seed)[0] for one, seed in zip(single, begun, strict=True)]
    same(env.reset(seed=list(begun))[0], expected)
    for stored in random_actions(env.single_action_space, min(2 * task.horizon, 240), 2):
        observation, reward, terminated, truncated, infos = env.step(codec.to_env(stored))
        assert infos == {} and not truncated.any()
        for slot, one in enumerate(single):
            space = one.action_space
            if isinstance(space, spaces.MultiDiscrete):
                action = np.unravel_index(stored[slot], space.nvec)
            else:
                action = stored[slot] if codec.discrete else 2 * stored[slot]
            expected[slot], paid, over, cut, _ = one.step(action)
            assert (reward[slot], terminated[slot]) == (paid, over or cut)
        same(observation, expected)
        if terminated.any():
            for slot in np.flatnonzero(terminated):
                begun[slot] += 2
                single[slot] = installed(task)  # nothing of the rollout before is left
                expected[slot], _ = single[slot].reset(seed=begun[slot])
            observation, _ = env.reset(seed=list(begun), options={"reset_mask": terminated})
            same(observation, expected)


@ALL
def test_random_rollouts_end_in_time_and_pay_what_the_task_says(task):
    """The seeds are fixed, so a mean 4 standard errors away is a wrong `random_return`."""
    slots = 48
    env = PopgymEnv(slots, name_of(task))
    codec = ActionCodec(env.single_action_space)
    env.reset(seed=1000)
    alive, returns, length = np.ones(slots, bool), np.zeros(slots), np.zeros(slots, int)
    for stored in random_actions(env.single_action_space, task.horizon, slots):
        _, reward, terminated, _, _ = env.step(codec.to_env(stored))
        returns += reward * alive
        length += alive
        alive &= ~terminated
        if terminated.any():
            env.reset(options={"reset_mask": terminated})
        if not alive.any():
            break
    assert not alive.any()
    if name_of(task).startswith(FIXED_LENGTH) and "CartPole" not in name_of(task):
        assert (length == task.horizon).all()
    worst = {"Easy": -64 / 52, "Medium": -100 / 88, "Hard": -144 / 132}  # Battleship without a hit
    bound = worst[name_of(task)[len("Battleship") :]] if "Battleship" in task.id else -1
    assert bound - 1e-9 <= returns.min() and returns.max() <= 1 + 1e-9
    error = returns.std(ddof=1) / np.sqrt(slots)
    assert abs(returns.mean() - task.random_return) < 4 * error


def test_faults_of_the_installed_version_are_as_described():
    """Where one of these fails, popgym has changed: other ids are due, not other numbers."""
    velocity = installed(get_task("long_term_memory/popgym/VelocityOnlyCartPoleEasy"))
    observation, _ = velocity.reset(seed=0)
    assert np.array_equal(observation, velocity.state[[0, 2]].astype(np.float32))  # positions
    assert np.array_equal(velocity.step(0)[0], velocity.state[[1, 3]].astype(np.float32))  # velocities
    recall = installed(get_task("long_term_memory/popgym/CountRecallEasy"))
    assert recall.action_space.n == recall.max_card_count + 1
    for family in ("CountRecall", "MineSweeper", "VelocityOnlyCartPole"):
        assert "popgym 1.0.7" in get_task(f"long_term_memory/popgym/{family}Hard").description


def test_misuse():
    env = PopgymEnv(2, "RepeatPreviousEasy")
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"slots \[0 1\] are done"):
        env.step(np.zeros(2, int))
    with pytest.raises(ValueError, match="3 seeds for 2 slots"):
        env.reset(seed=[1, 2, 3])
    env.reset(seed=0)
    for _ in range(51):
        env.step(np.zeros(2, int))
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.zeros(2, int))


def test_a_slot_without_a_seed_goes_on_with_its_generator():
    def decks(*seeds):
        env = PopgymEnv(1, "CountRecallHard")
        return [env.reset(seed=seed)[0].tolist() + env.step(np.zeros(1, int))[0].tolist() for seed in seeds]

    first, second = decks(5, None)
    assert decks(5, None) == [first, second] and first != second and decks(5, 5) == [first, first]


def test_without_popgym_a_run_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "popgym.envs", None)
    with pytest.raises(UserError, match=r"popgym.*pip install 'amago-bench\[popgym\]'$") as caught:
        TASKS[0].build(1)
    assert "\n" not in str(caught.value)


@ALL
def test_the_paper_tier_holds_the_paper_s_settings(task):
    budget, config = task.budget("paper"), configure("amago", task, "paper", {})
    assert (budget.env_steps, budget.num_envs, budget.seeds) == (15_600_000, 24, (0, 1, 2))
    assert (config.steps_per_iteration, config.updates_per_iteration, config.batch_sequences) == (1000, 1000, 24)
    assert (config.encoder_hidden, config.encoder_width, config.width, config.layers) == ((512, 512), 200, 256, 3)
    assert (config.reward_multiplier, config.gamma, config.tau) == (100.0, 0.999, 0.0025)
    assert (config.context, config.positions, config.anneal_steps) == (2000, "learned", 1_000_000)
    assert config.sample_actions and config.replay_sampling == "trajectory" and task.time_scale == 10_000
    assert config.replay_trajectories == 80_000 and config.replay_tokens == 80_000 * (task.horizon + 1)

    actions = ActionCodec(spaces.Discrete(2))
    ours = Exploration(config, actions, task.horizon, 1, np.random.default_rng(0))
    t = np.arange(task.horizon + 1)
    for trained in (0.0, 0.3, 1.0):  # the schedule of the wrapper, whose rollouts have 10,000 steps
        start, end = 1.0 - 0.95 * trained, 0.8 - 0.79 * trained
        np.testing.assert_allclose(ours.epsilon(t, int(trained * 1e6)), start - (start - end) * t / 10_000)


def test_the_laptop_tier_has_six_tasks_with_five_seeds():
    laptop = [task for task in TASKS if "laptop" in task.budgets]
    assert len(laptop) == 6 and all(task.id in PAPER_TASKS for task in laptop)
    assert all(task.budget("laptop").seeds == (0, 1, 2, 3, 4) for task in laptop)
    config = configure("amago", laptop[0], "laptop", {})
    assert (config.replay_sampling, config.updates_per_iteration) == ("transition", 8)
