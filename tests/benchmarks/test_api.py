import sys
import types

import gymnasium
import numpy as np
import pytest

from benchmarks import api
from benchmarks.agents.protocol import Progress
from results.errors import UserError
from results.schema import columns

TASK = "long_term_memory/tmaze/passive-10"


class Recall:
    """Solves T-Maze by rule; what it needs for that, it has to load."""

    def __init__(self, spec):
        self.turns, self.lr = None, spec.settings.get("lr")

    def learn(self, envs, seeds):
        self.turns = (3, 1)
        yield Progress()

    def act(self, step, memory, rng):
        memory = np.where(step.first, step.observation[:, 1], 0.0 if memory is None else memory)
        turn = np.where(memory > 0, self.turns[1], self.turns[0])
        return np.where(step.observation[:, 0] > 0, turn, 0), memory

    def save(self, folder):
        np.save(folder / "turns.npy", self.turns)

    def load(self, folder):
        self.turns = np.load(folder / "turns.npy").tolist()


@pytest.fixture
def recall(monkeypatch):
    monkeypatch.setitem(sys.modules, "recall_agents", types.SimpleNamespace(Recall=Recall))
    return "recall_agents:Recall"


@pytest.fixture
def loaded(recall, tmp_path):
    api.run(TASK, recall, root=tmp_path)
    return api.load(TASK, recall, root=tmp_path)


def test_a_loaded_run_evaluates_to_the_rows_of_its_final_evaluation(tmp_path):
    loaded = api.run(TASK, "random", root=tmp_path)
    rows = loaded.rows("episodes")
    final = rows[rows.final]
    episodes = loaded.evaluate()
    assert len(episodes) == len(final) == 100
    for name in ("slot", "rollout", "instance", "episode_return", "episode_length", "success_any", "finished"):
        assert [getattr(e, name) for e in episodes] == final[name].tolist()
    assert len(set(final.episode_return)) > 5


def test_rows_are_a_table_with_the_columns_of_the_schema(loaded):
    for table in ("runs", "curves", "episodes"):
        assert tuple(loaded.rows(table).columns) == columns(table)
    assert loaded.rows("curves").return_mean.tolist() == [1.0]
    assert loaded.evaluate(20, 10)[0].episode_return == 1.0


def test_acting_by_hand_remembers_within_a_rollout_and_forgets_between(loaded):
    total = []
    for seed in range(8):
        env = loaded.task.make(1)
        observation, _ = env.reset(seed=[seed])
        action, rewards, done = None, 0.0, False
        first = seed > 0  # the very first call need not say it
        while not done:
            action = loaded.act(observation[0], first=first)
            observation, reward, terminated, truncated, _ = env.step(np.array([action]))
            rewards, done, first = rewards + float(reward[0]), bool((terminated | truncated)[0]), False
        total.append(rewards)
    assert total == [1.0] * 8


def test_a_run_is_found_by_its_folder_alone(loaded):
    again = api.load(loaded.folder)
    assert (again.task.id, again.seed, again.agent.turns) == (TASK, 0, [3, 1])


def test_settings_come_back_with_the_run(recall, tmp_path):
    run = api.run(TASK, recall, root=tmp_path, lr=3e-4)
    assert run.rows("runs").agent.iloc[-1] == "recall_agents:Recall@lr=0.0003"
    assert api.load(TASK, f"{recall}@lr=0.0003", root=tmp_path).folder == run.folder


def test_a_sweep_makes_what_is_missing(tmp_path):
    api.run(TASK, "random", root=tmp_path, trackers=())
    states = api.sweep(TASK, "random", seeds=2, root=tmp_path)
    assert [(state.job.seed, state.status) for state in states] == [(1, "finished")]
    assert api.load(TASK, "random", seed=1, root=tmp_path).seed == 1
    assert api.sweep(TASK, ["random"], seeds=[0, 1], root=tmp_path) == []


def test_what_cannot_be_loaded_is_said(recall, tmp_path):
    with pytest.raises(UserError, match="holds no finished run; `amago-bench run` makes it"):
        api.load(TASK, recall, root=tmp_path)
    with pytest.raises(UserError, match=r"config\.json"):
        api.load(tmp_path / "nowhere")


def test_actions_of_every_kind_of_space_come_out_single(loaded, toys):
    box = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    space = gymnasium.spaces.Dict(a=gymnasium.spaces.Discrete(3), b=box)

    class Echo:
        def act(self, step, memory, rng):
            return step.observation["b"], memory

    run = api.LoadedRun(loaded.folder, loaded.task, Echo(), 0, (space, box))
    action = run.act({"a": 2, "b": np.array([0.5, -0.5], np.float32)})
    assert action.shape == (2,)
    assert action.tolist() == [0.5, -0.5]
