import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from numpy.testing import assert_array_equal

from benchmarks.agents.protocol import ContractError
from benchmarks.catalog import tasks
from benchmarks.gate.harness_env import BLOCK, EnvironmentFault, HarnessEnv, rollout_seeds
from results.errors import UserError

ROOT = np.random.SeedSequence(7)
IDLE = (1.0, False, False, {})
BOX = spaces.Box(-1, 1, (2,), np.float32)
GOOD = np.zeros((3, 2), np.float32)
NO = np.zeros(3, bool)


def wrap(task, slots=2, role="train", root=ROOT):
    return HarnessEnv(task.make(slots), task, root, role)


def noop(env):
    return np.zeros(env.num_envs, np.int64)


def answers(toys, observation=GOOD, reward=NO, terminated=NO, truncated=NO, infos=None, space=BOX, action=None):
    """An environment of 3 slots that always gives the same step, after a first observation that is in order."""

    def answer(t):
        return (
            observation if t else np.zeros((3, *space.shape), space.dtype),
            reward,
            terminated,
            truncated,
            dict(infos or {}),
        )

    env = HarnessEnv(toys.answering(3, space, answer, action), toys.task(lambda n: None, 50), ROOT, "train")
    env.reset()
    return env


# --- horizon and flags ---


def test_end_of_episode_never_signalled(toys):
    def script(t):
        if t == 6:
            raise ValueError("past max_path_length")
        return IDLE

    env = wrap(toys.scripted(script, horizon=5))
    env.reset()
    for t in range(1, 6):
        *_, terminated, truncated, _ = env.step(noop(env))
        assert_array_equal(truncated, [t == 5] * 2)
        assert not terminated.any()
    env.reset(options={"reset_mask": truncated})
    env.step(noop(env))


@pytest.mark.parametrize("task", [t for t in tasks().values() if t.horizon <= 400], ids=lambda t: t.id)
def test_step_counter_not_reset(task):
    """Two rollouts, and the same two once more in the same environment, are as long as before."""
    raw = task.make(1)

    def lengths():
        env = HarnessEnv(raw, task, ROOT, "train")  # the same seeds each time
        env.action_space.seed(0)
        for _ in range(2):
            env.reset()
            while not env.needs_reset.any():
                env.step(env.action_space.sample())
            yield int(env.t[0])

    assert list(lengths()) == list(lengths())
    raw.close()


def test_time_limit_is_no_termination(toys):
    env = wrap(toys.scripted(lambda t: (1.0, False, t == 3, {}), horizon=5))
    env.reset()
    flags = [env.step(noop(env))[2:4] for _ in range(3)]
    assert not any(terminated.any() for terminated, _ in flags)
    assert [truncated.all() for _, truncated in flags] == [False, False, True]


@pytest.mark.parametrize("also", [False, True])
def test_both_flags_true(toys, also):
    env = wrap(toys.scripted(lambda t: (1.0, t == 2, also and t == 2, {}), horizon=2))
    env.reset()
    env.step(noop(env))
    *_, terminated, truncated, _ = env.step(noop(env))
    assert terminated.all()
    assert not truncated.any()


def test_episode_over_right_after_reset(toys):
    env = wrap(toys.scripted(lambda t: (1.0, True, False, {})))
    env.reset()
    for _ in range(7):
        *_, terminated, truncated, _ = env.step(noop(env))
        assert_array_equal(env.t, [1, 1])
        env.reset(options={"reset_mask": terminated | truncated})
    assert_array_equal(env.rollouts, [8, 8])


@pytest.mark.parametrize("length", [1, 3])
def test_no_dead_reset_row(toys, length):
    env = wrap(toys.scripted(lambda t: (1.0, t == length, False, {})))
    env.reset()
    lengths, rewards = [], 0.0
    for _ in range(14):
        _, reward, terminated, truncated, _ = env.step(noop(env))
        rewards += reward.sum()
        if (done := terminated | truncated).any():
            lengths += env.t[done].tolist()
            env.reset(options={"reset_mask": done})
    assert set(lengths) == {length}
    assert env.env_steps == 28 == rewards == sum(lengths) + env.t.sum()


def test_terminal_observation_is_of_the_old_rollout(toys):
    env = wrap(toys.scripted(lambda t: (1.0, t == 2, False, {})))
    first, _ = env.reset()
    env.step(noop(env))
    last, *_ = env.step(noop(env))
    fresh, _ = env.reset()
    assert_array_equal(last, np.stack([first[:, 0], [2, 2]], 1))
    assert (fresh[:, 0] != last[:, 0]).all()
    assert_array_equal(fresh[:, 1], [0, 0])


def test_inner_boundary_is_a_flag_and_ends_nothing(toys):
    env = wrap(toys.scripted(lambda t: (1.0, False, False, {"inner_reset": t in (2, 4)}), horizon=4))
    _, infos = env.reset()
    assert_array_equal(infos["inner_reset"], [False, False])
    seen = [env.step(noop(env)) for _ in range(4)]
    assert [bool(s[4]["inner_reset"].all()) for s in seen] == [False, True, False, True]
    assert not any(s[2].any() for s in seen)
    assert [bool(s[3].all()) for s in seen] == [False, False, False, True]


def test_a_masked_reset_leaves_the_other_slots_alone(toys):
    env = wrap(toys.scripted(lambda t: IDLE, horizon=9))
    before, _ = env.reset()
    env.step(noop(env))
    after, _ = env.reset(options={"reset_mask": np.array([True, False])})
    assert_array_equal(after[1], [before[1, 0], 1])
    assert_array_equal(env.t, [0, 1])
    assert_array_equal(env.rollouts, [2, 1])


# --- seeds ---


def test_every_slot_and_rollout_has_its_seed(toys):
    task = toys.scripted(lambda t: IDLE)
    first = {wrap(task, 8, root=np.random.SeedSequence(s)).reset()[0][i, 0] for s in range(5) for i in range(8)}
    assert len(first) == 40


def test_a_rollout_depends_on_its_seed_alone(toys):
    task = toys.scripted(lambda t: (1.0, t == 2, False, {}))
    few, many = wrap(task, 1), wrap(task, 4)
    for _ in range(3):
        assert_array_equal(few.reset()[0][0], many.reset()[0][0])


def test_train_and_evaluation_seeds_are_disjoint_and_differ_between_slots_and_blocks():
    train = [rollout_seeds(ROOT, "train", slot, block) for slot in range(40) for block in range(4)]
    evaluation = [rollout_seeds(ROOT, "evaluate", slot, block) for slot in range(40) for block in range(4)]
    assert not np.intersect1d(train, evaluation).size
    assert not any((seeds % 2).any() for seeds in train)  # disjoint for every root, not just for this one
    assert all((seeds % 2).all() for seeds in evaluation)
    assert len({tuple(seeds) for seeds in train + evaluation}) == 320
    assert all(seeds.min() >= 0 and seeds.max() < 2**31 for seeds in train + evaluation)


def test_seeds_go_on_past_a_block(toys):
    env = wrap(toys.scripted(lambda t: IDLE), slots=1)
    seen = []
    for _ in range(BLOCK + 2):
        env.reset()
        seen.append(int(env.seeds[0]))
    expected = np.concatenate([rollout_seeds(ROOT, "train", 0, 0), rollout_seeds(ROOT, "train", 0, 1)[:2]])
    assert_array_equal(seen, expected)


def test_a_seed_from_outside_is_refused(toys):
    with pytest.raises(ContractError, match="the harness seeds every rollout itself"):
        wrap(toys.scripted(lambda t: IDLE)).reset(seed=3)


# --- casts and copies ---


@pytest.mark.parametrize("reward", [np.ones(3), np.ones(3, np.int64), np.ones(3, bool), np.ones((3, 1)), [1, 1, 1]])
def test_rewards_are_cast_once(toys, reward):
    env = answers(toys, reward=reward, observation=GOOD.astype(np.float64))
    observation, got, terminated, truncated, _ = env.step(noop(env))
    assert (got.dtype, got.shape) == (np.float32, (3,))
    assert observation.dtype == np.float32
    assert terminated.dtype == truncated.dtype == bool
    assert_array_equal(got, [1, 1, 1])


def test_negative_strides_and_read_only(toys):
    view = np.arange(6, dtype=np.float32).reshape(2, 3).T[::-1]
    view.flags.writeable = False
    env = answers(toys, observation=view)
    observation, *_ = env.step(noop(env))
    assert observation.flags.c_contiguous
    assert observation.flags.writeable
    assert_array_equal(observation, [[2, 5], [1, 4], [0, 3]])


def test_a_buffer_that_the_environment_uses_again(toys):
    buffer = GOOD.copy()
    env = answers(toys, observation=buffer)
    observation, *_ = env.step(noop(env))
    buffer += 9
    assert_array_equal(observation, GOOD)


def test_dictionaries_keep_their_structure(toys):
    space = spaces.Dict(a=spaces.Discrete(4), b=spaces.Tuple([spaces.MultiDiscrete([2, 2]), BOX]))
    value = {"a": np.array([0, 1, 2], np.int32), "b": (np.zeros((3, 2), np.uint8), GOOD.astype(np.float64))}
    env = HarnessEnv(
        toys.answering(3, space, lambda t: (value, NO, NO, NO, {})), toys.task(lambda n: None), ROOT, "train"
    )
    observation, _ = env.reset()
    assert observation["a"].dtype == env.observation_space["a"].dtype
    assert observation["b"][1].dtype == np.float32
    value["a"] = value["a"].astype(float)
    with pytest.raises(EnvironmentFault, match=r"observation\['a'\] has dtype float64"):
        env.step(noop(env))
    del value["a"]
    with pytest.raises(EnvironmentFault, match=r"keys \['b'\]"):
        env.step(noop(env))


def test_an_environment_that_changes_the_action_changes_neither_the_log_nor_the_agents_array(toys):
    def answer(t):
        if t:
            raw.actions *= -1
        return GOOD, NO, NO, NO, {}

    raw = toys.answering(3, BOX, answer, BOX)
    env = HarnessEnv(raw, toys.task(lambda n: None), ROOT, "train")
    env.reset()
    actions = np.full((3, 2), 0.5, np.float32)
    env.step(actions)
    assert_array_equal(raw.actions, -actions)
    assert (actions == 0.5).all()
    assert (env.state()["actions"] == 0.5).all()


# --- faults of the environment ---


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("what", ["reward", "observation"])
def test_a_number_that_is_not_finite_names_task_slot_seed_and_step(toys, bad, what):
    value = GOOD.copy() if what == "observation" else np.zeros(3)
    value[1] = bad
    env = answers(toys, **{what: value})
    with pytest.raises(EnvironmentFault, match=what) as caught:
        env.step(noop(env))
    assert f"task test/toy/a, slot 1, seed {env.seeds[1]}, step 1" in str(caught.value)


@pytest.mark.parametrize(
    ("what", "value", "says"),
    [
        ("observation", np.zeros((3, 3), np.float32), r"shape \(3, 3\) instead of \(3, 2\)"),
        ("observation", np.zeros((3, 2), "U1"), "dtype <U1"),
        ("observation", np.full((3, 2), 1e300), "not finite"),
        ("reward", np.zeros(2), r"shape \(2,\) instead of \(3,\)"),
        ("reward", np.float64(0), r"shape \(\) instead of \(3,\)"),
        ("reward", np.array([0, 0, None]), "dtype object"),
        ("terminated", np.zeros((3, 1)), r"terminated has shape \(3, 1\)"),
        ("infos", {"success": [True]}, "success"),
    ],
)
def test_a_wrong_shape_or_dtype_is_named(toys, what, value, says):
    env = answers(toys, **{what: value})
    with pytest.raises(EnvironmentFault, match=says):
        env.step(noop(env))


@pytest.mark.parametrize("bad", [np.nan, 0.3, 2, -1])
@pytest.mark.parametrize("what", ["terminated", "truncated", "success", "is_success", "inner_reset", "inner_truncated"])
def test_a_truth_value_is_0_or_1(toys, what, bad):
    def run(values):
        changes = {what: values} if what.endswith("ated") and what[0] == "t" else {"infos": {what: values}}
        env = answers(toys, **changes)
        return env, env.step(noop(env))

    for good in ([0, 1, 0], [0.0, 1.0, 0.0], [False, True, False]):
        _, (*_, terminated, truncated, infos) = run(np.array(good))
        got = {"terminated": terminated, "truncated": truncated, **infos}[what.removeprefix("is_")]
        assert got.dtype == bool
        assert_array_equal(got, [False, True, False])
    with pytest.raises(EnvironmentFault, match=rf"test/toy/a, slot 1, seed \d+, step 1: .*{what}.*neither 0 nor 1"):
        run(np.array([0, bad, 0]))


def test_an_info_that_is_absent_is_unknown(toys):
    """Gymnasium's vector environments fill the slots that tell nothing with zeros."""
    told = np.array([True, True, False])

    def answer(t):
        who = told if t != 1 else ~told
        infos = {"instance": np.where(who, [4, 5, 6], 0), "success": np.where(who, 1, 7)}
        return GOOD, NO, NO, NO, infos | {"_instance": who, "_success": who}

    env = HarnessEnv(toys.answering(3, BOX, answer), toys.task(lambda n: None), ROOT, "train")
    env.reset(options={"instance": np.array([4, 5, 9])})
    assert env.instance.tolist() == ["4", "5", ""]
    assert_array_equal(env.step(noop(env))[4]["success"], ~told)
    assert_array_equal(env.step(noop(env))[4]["success"], told)


def test_infos_without_a_declared_meaning_belong_to_their_environment(toys):
    def step(success, **changes):
        infos = {"instance": ["berlin52", object(), 2.5], "inner_reset": ["no"] * 3, "success": success}
        raw = toys.answering(3, BOX, lambda t: (GOOD, NO, NO, NO, infos))
        env = HarnessEnv(raw, toys.task(lambda n: None, **changes), ROOT, "train")
        env.reset()
        assert env.instance.tolist() == ["", "", ""]
        return env.step(noop(env))[4]

    assert "success" not in step([None, "False", "yes"], infos=())
    assert_array_equal(step([None, 1, "yes"], infos=())["success"], [False, True, False])
    assert not step(NO, infos=())["inner_reset"].any()
    with pytest.raises(EnvironmentFault, match=r"slot 1.*success.*0\.3"):
        step([0, 0.3, 0], infos=())
    with pytest.raises(EnvironmentFault, match=r"slot 1.*success.*'False'"):
        step([0, "False", 0], infos=("success",))


def test_an_instance_that_is_no_whole_number_is_refused(toys):
    env = answers(toys)
    with pytest.raises(ContractError, match=r"2\.5.*not whole numbers"):
        env.reset(options={"instance": np.array([0, 2.5, 1])})


def test_integers_that_do_not_fit_are_no_silent_overflow(toys):
    space = spaces.Box(0, 255, (2,), np.uint8)
    env = answers(toys, observation=np.array([[0, 255], [0, 0], [0, 0]]), space=space)
    assert_array_equal(env.step(noop(env))[0][0], [0, 255])
    env = answers(toys, observation=np.array([[0, 0], [0, 256], [0, 0]]), space=space)
    with pytest.raises(EnvironmentFault, match=r"slot 1.* past uint8"):
        env.step(noop(env))


@pytest.mark.parametrize(
    ("dtype", "fits", "bad"),
    [(np.float64, 1e38, 1e39), (np.float64, -1e38, -1e300), (np.int64, 2**24, 2**24 + 1), (np.int64, 5, -(2**63))],
)
def test_an_observation_beyond_float32_is_no_silent_infinity_or_merger(toys, dtype, fits, bad):
    low, high = (-1.7e308, 1.7e308) if dtype == np.float64 else (-(2**63), 2**63 - 1)
    space = spaces.Box(low, high, (2,), dtype)
    value = np.zeros((3, 2), dtype)
    value[1, 1] = fits
    env = answers(toys, observation=value, space=space)
    assert_array_equal(env.step(noop(env))[0], value)
    value[1, 1] = bad
    with pytest.raises(EnvironmentFault, match=r"slot 1, .*step 2: the observation has values that float32 cannot"):
        env.step(noop(env))


def test_a_hidden_instance_that_changes_inside_a_rollout(toys):
    def answer(t):
        return GOOD, NO, NO, NO, {"instance": np.array([4, 4, 4 + (t >= 2)])}

    env = HarnessEnv(toys.answering(3, BOX, answer), toys.task(lambda n: None), ROOT, "train")
    env.reset()
    env.step(noop(env))
    with pytest.raises(EnvironmentFault, match=r"slot 2.*instance changed inside a rollout, from 4 to 5"):
        env.step(noop(env))


def test_an_environment_that_takes_another_instance_than_asked(toys):
    env = HarnessEnv(
        toys.answering(3, BOX, lambda t: (GOOD, NO, NO, NO, {"instance": np.array([0, 0, 0])})),
        toys.task(lambda n: None),
        ROOT,
        "train",
    )
    with pytest.raises(EnvironmentFault, match=r"slot 1.*asked for instance 1, the environment took 0"):
        env.reset(options={"instance": np.array([0, 1, 0])})


def test_an_environment_that_resets_itself_is_refused(toys):
    task = toys.scripted(lambda t: IDLE)
    raw = SyncVectorEnv([lambda: task.make(1).envs[0]])
    with pytest.raises(EnvironmentFault, match=r"AutoresetMode\.DISABLED"):
        HarnessEnv(raw, task, ROOT, "train")


def test_a_task_that_makes_another_number_of_slots_is_refused(toys):
    task = toys.task(lambda n: toys.answering(n + 1, BOX, lambda t: (GOOD, NO, NO, NO, {})))
    with pytest.raises(UserError, match=r"test/toy/a: make\(3\) gave 4 slots"):
        task.build(3)


# --- faults of the agent ---


@pytest.mark.parametrize(
    ("action", "actions", "says"),
    [
        (spaces.Discrete(3), np.array([0, 3, 0]), r"action 3, which is outside Discrete\(3\).*slot 1"),
        (spaces.Discrete(3, start=1), np.array([1, 3, 0]), "action 0, which is outside.*slot 2"),
        (spaces.Discrete(3), np.zeros((3, 1), int), r"shape \(3, 1\)"),
        (spaces.Discrete(3), np.zeros(3), "dtype float64"),
        (spaces.MultiDiscrete([2, 4]), np.array([[0, 0], [1, 3], [2, 0]]), "outside.*slot 2"),
        (BOX, np.array([[0, 0], [0, np.nan], [0, 0]]), "nan.*slot 1"),
        (BOX, np.array([[0, 0], [0, 0], [1.1, 0]]), "outside.*slot 2"),
    ],
)
def test_a_bad_action_names_the_method_slot_seed_and_step(toys, action, actions, says):
    env = answers(toys, action=action)
    with pytest.raises(ContractError, match=says) as caught:
        env.step(actions)
    assert str(caught.value).startswith("learn() gave")
    assert "step 0" in str(caught.value)


def test_rounding_past_a_bound_is_clipped(toys):
    env = answers(toys, action=BOX)
    env.step(np.full((3, 2), 1.000001))
    assert_array_equal(env.env.actions, np.ones((3, 2), np.float32))
    assert env.env.actions.dtype == np.float32


def test_stepping_a_slot_that_is_done(toys):
    env = wrap(toys.scripted(lambda t: (1.0, t == 1, False, {})), role="evaluate")
    with pytest.raises(ContractError, match=r"act\(\) stepped slot 0, which is done"):
        env.step(noop(env))
    env.reset()
    env.step(noop(env))
    env.reset(options={"reset_mask": np.array([True, False])})
    with pytest.raises(ContractError, match="slot 1, which is done"):
        env.step(noop(env))
