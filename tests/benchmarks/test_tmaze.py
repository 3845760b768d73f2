"""T-Maze against rules written down a second time, and against returns worked out by hand."""

import pickle
from functools import partial
from itertools import product

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from benchmarks.agents.protocol import VectorStep
from benchmarks.long_term_memory.tmaze.env import DOWN, LEFT, RIGHT, UP, TMaze, TMazeEnv
from benchmarks.long_term_memory.tmaze.tasks import TASKS, follow_cue, random_return

BOTH = pytest.mark.parametrize("active", [False, True], ids=["passive", "active"])
PASSIVE, ACTIVE = "amago_bench/PassiveTMaze-v0", "amago_bench/ActiveTMaze-v0"


class Reference:
    """One T-Maze in coordinates, straight from the text of the rules."""

    def __init__(self, corridor, active, goal):
        self.corridor, self.active, self.goal = corridor, active, goal
        self.x, self.y, self.t, self.shown = 0, 0, 0, False  # x = 0 is the start; the active oracle is at x = -1

    def observe(self):
        if self.x == self.corridor:
            return [1, self.y]
        if self.x == (-1 if self.active else 0) and not self.shown:
            self.shown = True
            return [0, self.goal]
        return [0, 0]

    def step(self, action):
        dx, dy = {0: (1, 0), 1: (0, 1), 2: (-1, 0), 3: (0, -1)}[action]
        x, y = self.x + dx, self.y + dy
        in_corridor = y == 0 and (-1 if self.active else 0) <= x <= self.corridor
        if in_corridor or (x == self.corridor and abs(y) == 1):
            self.x, self.y = x, y
        self.t += 1
        last = self.t == self.corridor + (3 if self.active else 1)
        if last:
            reward = 1.0 if self.y == self.goal else 0.0
        else:
            free = action == 0 or (self.active and self.t == 1)
            reward = 0.0 if free else -1 / self.corridor
        return self.observe(), reward, last


def play(env, actions, **reset):
    """Returns float [B] of action sequences [T, B] from one reset, and the last infos."""
    env.reset(**reset)
    returns = np.zeros(env.num_envs)
    for row in actions:
        _, reward, _, _, infos = env.step(row)
        returns += reward
    return returns, infos


def rollout(env, actions, **reset):
    """Everything that slots show under action sequences [T, B]: [T + 1, B, 2 + 3]."""
    observation, _ = env.reset(**reset)
    nothing = np.zeros(env.num_envs)
    rows = [np.column_stack([observation, nothing, nothing, nothing])]
    for row in actions:
        observation, reward, terminated, truncated, _ = env.step(row)
        rows.append(np.column_stack([observation, reward, terminated, truncated]))
    return np.stack(rows)


def walk(env, *, right=0.7, seed=0):
    """Random actions [horizon, B] that go right often enough to reach the arms."""
    p = [right, *[(1 - right) / 3] * 3]
    return np.random.default_rng(seed).choice(4, size=(env.horizon, env.num_envs), p=p)


@BOTH
@pytest.mark.parametrize("corridor", [1, 2, 3, 10])
@pytest.mark.parametrize("right", [0.25, 0.9])
def test_every_step_equals_the_reference(corridor, active, right):
    env = TMaze(128, corridor, active)
    goals = np.where(np.arange(128) % 2, 1, -1)
    references = [Reference(corridor, active, goal) for goal in goals]
    observation, infos = env.reset(options={"instance": np.arange(128) % 2})
    assert (observation == [reference.observe() for reference in references]).all()
    assert (infos["instance"] == (goals > 0)).all()
    for actions in walk(env, right=right):
        observation, reward, terminated, truncated, infos = env.step(actions)
        expected = [reference.step(action) for reference, action in zip(references, actions, strict=True)]
        assert (observation == [row[0] for row in expected]).all()
        np.testing.assert_array_equal(reward, np.float32([row[1] for row in expected]))
        assert (terminated == [row[2] for row in expected]).all() and (terminated == truncated).all()
        assert (infos["success"] == [row[2] and row[1] == 1 for row in expected]).all()
    assert terminated.all()


@BOTH
def test_types_shapes_and_space(active):
    env = TMaze(16, 3, active)
    assert env.metadata["autoreset_mode"] is AutoresetMode.DISABLED
    observation, _ = env.reset(seed=0)
    for actions in walk(env):
        assert env.observation_space.contains(observation) and env.single_observation_space.contains(observation[0])
        observation, reward, terminated, truncated, infos = env.step(actions)
        assert reward.dtype == np.float32 and terminated.dtype == truncated.dtype == infos["success"].dtype == bool
        assert all(x.shape == (16,) for x in (reward, terminated, truncated, *infos.values()))


@pytest.mark.parametrize("corridor", [1, 10, 100, 1000])
def test_scripted_returns(corridor):
    """The oracle has exactly 1, always right 0, and turning blindly 0.5."""
    right = np.full((corridor + 1, 2), RIGHT)
    goals = {"options": {"instance": [0, 1]}}
    assert (play(TMaze(2, corridor), right, **goals)[0] == [0, 0]).all()
    blind = np.vstack([right[:-1], [[UP, UP]]])
    assert (play(TMaze(2, corridor), blind, **goals)[0] == [0, 1]).all()
    told = np.vstack([right[:-1], [[DOWN, UP]]])
    returns, infos = play(TMaze(2, corridor), told, **goals)
    assert (returns == [1, 1]).all() and infos["success"].all()


def test_active_scripted_returns():
    """The way to the oracle is free, N + 1 rights follow; a second look at it costs 1/N a step."""
    right = [RIGHT] * 10
    ways = [[LEFT, RIGHT, *right, UP], [LEFT, LEFT, RIGHT, *right], [RIGHT, LEFT, *right, UP], [*right, UP, UP, UP]]
    returns, _ = play(TMaze(4, 10, active=True), np.transpose(ways), options={"instance": [1] * 4})
    np.testing.assert_allclose(returns, [1, -0.1, 0.9, 1 - 0.2], atol=1e-6)


def test_the_active_cue_is_shown_once():
    env = TMaze(1, 5, active=True)
    first, _ = env.reset(options={"instance": [0]})
    seen = [first, *(env.step([action])[0] for action in (LEFT, LEFT, RIGHT, LEFT))]
    assert [list(o[0]) for o in seen] == [[0, 0], [0, -1], [0, 0], [0, 0], [0, 0]]


@BOTH
@pytest.mark.parametrize("corridor", [1, 2, 3])
def test_random_return_and_the_blind_best_over_all_action_sequences(active, corridor):
    steps = TMaze(1, corridor, active).horizon
    sequences = np.array(list(product(range(4), repeat=steps))).T
    env = TMaze(sequences.shape[1], corridor, active)
    up = play(env, sequences, options={"instance": np.ones(env.num_envs, int)})[0]
    down = play(env, sequences, options={"instance": np.zeros(env.num_envs, int)})[0]
    assert random_return(corridor, active) == pytest.approx((up.mean() + down.mean()) / 2, abs=1e-6)
    assert max(up) == max(down) == 1
    assert max(up + down) / 2 == 0.5  # whoever does not see the cue


@BOTH
def test_random_return_by_simulation(active):
    env = TMaze(20_000, 10, active)
    returns, _ = play(env, np.random.default_rng(1).integers(4, size=(env.horizon, 20_000)), seed=1)
    assert abs(returns.mean() - random_return(10, active)) < 5 * returns.std() / 20_000**0.5
    assert random_return(10_000, False) == -0.75  # the goal's share is below the smallest float


@BOTH
@pytest.mark.parametrize("slots", [1, 7])
def test_oracle_is_exact(active, slots):
    policy = partial(follow_cue, first_action=LEFT if active else RIGHT)
    env = TMaze(slots, 30, active)
    reward, memory, returns, first = np.zeros(slots, np.float32), None, np.zeros(slots), np.ones(slots, bool)
    for seed in (3, 4):  # the second rollout keeps the memory object of the first
        observation, _ = env.reset(seed=seed)
        for _ in range(env.horizon):
            actions, memory = policy(VectorStep(observation, reward, first, np.zeros(slots, bool)), memory)
            observation, reward, *_ = env.step(actions)
            returns += reward
            first = np.zeros(slots, bool)
        first = np.ones(slots, bool)
    assert (returns == 2).all()


@BOTH
def test_a_slot_depends_on_its_seed_alone(active):
    big = TMaze(8, 6, active)
    actions = walk(big)
    seeds = [10, 11, 12, 13, 14, 15, 16, 17]
    together = rollout(big, actions, seed=seeds)
    alone = [rollout(TMaze(1, 6, active), actions[:, [b]], seed=[seeds[b]]) for b in range(8)]
    np.testing.assert_array_equal(together, np.concatenate(alone, axis=1))


def test_later_goals_of_a_slot_do_not_depend_on_the_others():
    alone, crowd = TMaze(1, 2), TMaze(3, 2)
    goals = [alone.reset(seed=[7] if k == 0 else None)[1]["instance"][0] for k in range(32)]
    crowd.reset(seed=[1, 2, 7])
    for goal in goals[1:]:
        for _ in range(2):  # the others reset twice as often
            crowd.reset(options={"reset_mask": np.array([True, True, False])})
        assert crowd.reset(options={"reset_mask": np.array([False, False, True])})[1]["instance"][2] == goal


def test_reset_mask_leaves_the_other_slots_alone():
    env = TMaze(3, 2)
    env.reset(options={"instance": [0, 1, 1]})
    observation, *_ = env.step([RIGHT, UP, RIGHT])
    masked, infos = env.reset(options={"reset_mask": np.array([False, True, False]), "instance": [1, 0, 0]})
    assert masked.tolist() == [[0, 0], [0, -1], [0, 0]] and infos["instance"].tolist() == [0, 0, 1]
    env.step([RIGHT] * 3)
    observation, reward, terminated, *_ = env.step([DOWN, RIGHT, DOWN])
    assert observation.tolist() == [[1, -1], [1, 0], [1, -1]]
    assert reward.tolist() == [1, 0, 0] and terminated.tolist() == [True, False, True]


@BOTH
def test_second_rollout_is_as_long_and_carries_nothing_over(active):
    """A reset clears the step counter and all that an observation carries over."""
    env = TMaze(4, 5, active)
    actions = walk(env)
    first, second = (rollout(env, actions, seed=[0, 1, 2, 3]) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert (second[1:, :, 3].sum(axis=0) == 1).all() and second[-1, :, 3].all()
    env.reset(seed=[0, 1, 2, 3])
    env.step(actions[0])
    np.testing.assert_array_equal(rollout(env, actions, seed=[0, 1, 2, 3]), first)  # a reset in the middle


def test_seeds_spread():
    """Seeds 0 to 4 with 8 slots are 40 different streams, here read off 64 goals each."""
    streams = set()
    for seed in range(5):
        env = TMaze(8, 1)
        goals = [env.reset(seed=seed if k == 0 else None)[1]["instance"] for k in range(64)]
        streams |= {tuple(goals_of_slot) for goals_of_slot in np.transpose(goals)}
    assert len(streams) == 40


def test_goals_are_balanced():
    instances = TMaze(4000, 1).reset(seed=0)[1]["instance"]
    assert abs(instances.mean() - 0.5) < 4 * 0.5 / 4000**0.5


def test_a_reset_of_others_shows_the_current_observation_again():
    env = TMaze(2, 3)
    before, _ = env.reset(options={"instance": [1, 1]})
    after, _ = env.reset(options={"reset_mask": np.array([False, True]), "instance": [0, 0]})
    assert before.tolist() == [[0, 1], [0, 1]] and after.tolist() == [[0, 1], [0, -1]]


def test_none_in_a_list_of_seeds_goes_on():
    env, twin = TMaze(2, 1), TMaze(2, 1)
    env.reset(seed=[1, 2])
    twin.reset(seed=[1, 2])
    for k in range(16):
        goals, expected = env.reset(seed=[None, k])[1]["instance"], twin.reset()[1]["instance"]
        assert goals[0] == expected[0] and goals[1] == TMaze(1, 1).reset(seed=[k])[1]["instance"][0]


def test_what_is_returned_belongs_to_the_caller():
    env = TMaze(2, 1)
    kept = [env.reset(seed=0), env.step([RIGHT, UP]), env.step([UP, UP])]
    before = pickle.dumps(kept)
    env.reset(seed=1)
    env.step([RIGHT, RIGHT])
    assert pickle.dumps(kept) == before
    for result in (env.reset(seed=0), env.step([RIGHT, RIGHT])):  # ... who may write into it
        for array in (*result[:-1], *result[-1].values()):
            array[:] = 1
    again, infos = env.reset(options={"reset_mask": np.zeros(2, bool)})
    assert again.tolist() == [[1, 0], [1, 0]] and (infos["instance"] == TMaze(2, 1).reset(seed=0)[1]["instance"]).all()
    assert env.step([UP, UP])[2].all()


def test_a_pickled_environment_goes_on_as_the_original():
    env = TMaze(4, 5, active=True)
    actions = walk(env)
    env.reset(seed=1)
    env.step(actions[0])
    twin = pickle.loads(pickle.dumps(env))
    for row in actions[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(env.step(row)[:4], twin.step(row)[:4], strict=True))
    assert (env.reset()[1]["instance"] == twin.reset()[1]["instance"]).all()


def test_misuse_is_named():
    env = TMaze(2, 1)
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"\[0 1\]"):
        env.step([0, 0])
    env.reset(seed=0)
    for actions in ([0, 4], [-1, 0], [0], [0.0, 1.0]):
        with pytest.raises(ValueError, match="actions must"):
            env.step(np.array(actions))
    with pytest.raises(ValueError, match="1 seeds for 2 slots"):
        env.reset(seed=[1])
    with pytest.raises(ValueError, match="reset_mask must be bool"):
        env.reset(options={"reset_mask": [1, 0]})
    with pytest.raises(ValueError, match="must be 0 or 1"):
        env.reset(options={"instance": [0, 2]})
    with pytest.raises(ValueError, match="corridor >= 1"):
        TMaze(2, 0)
    env.step([0, 0])
    env.step([0, 0])
    env.reset(options={"reset_mask": np.array([True, False])})
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"\[1\]"):
        env.step([0, 0])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("env_id", [PASSIVE, ACTIVE])
def test_plain_environment_passes_the_checker(env_id):
    env = gymnasium.make(env_id, corridor=7)
    check_env(env.unwrapped)
    assert pickle.loads(pickle.dumps(env)).spec == env.spec


@BOTH
def test_plain_environment_is_a_slot(active):
    slot = TMaze(1, 6, active)
    actions = walk(slot)
    env = TMazeEnv(6, active)
    for seed in (5, None):  # without a seed both go on with the generator of the rollout before
        expected = rollout(slot, actions, seed=None if seed is None else [seed])[:, 0]
        observation, _ = env.reset(seed=seed)
        rows = [[*observation, 0, 0, 0]]
        for action in actions[:, 0]:
            observation, *rest, info = env.step(action)
            rows.append([*observation, *rest])
        np.testing.assert_array_equal(rows, expected)
    assert env.reset(options={"instance": 1})[1] == {"instance": 1} and set(info) == {"success", "instance"}


def test_make_vec_gives_the_vectorised_environment():
    env = gymnasium.make_vec(ACTIVE, num_envs=3, corridor=4)
    assert isinstance(env.unwrapped, TMaze) and env.unwrapped.horizon == 7 and env.num_envs == 3


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_tasks_state_their_horizon(task):
    env = task.make(2)
    assert env.horizon == task.horizon and env.num_envs == 2
    assert task.random_return < 0 < task.high == 1 and not task.sample_actions and task.instances == 2
