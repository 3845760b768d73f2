"""AMAGO under the contract of the harness."""

from pathlib import Path

import numpy as np
import pytest
import torch

from amago_core.sequences import Batch, Packing
from benchmarks.agents.amago import Amago
from benchmarks.agents.protocol import AgentSpec, VectorStep
from benchmarks.gate.evaluate import evaluate, evaluation_seeds

HORIZON, ROLLOUTS, SLOTS = 4, 2, 2
SMALL = {"encoder_hidden": "8", "encoder_width": "8", "width": "8", "actor_critic_hidden": "8", "discounts": "0.9"}


@pytest.mark.parametrize("preset", ["amago", "amago-gru", "amago-memoryless"])
def test_memory_lives_from_the_first_to_the_last_step_of_a_rollout(
    toys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, preset: str
) -> None:
    """The policies of an evaluation are those of one forward pass over what was seen and done in each rollout, and what
    is done is what the policy says: no exploration."""
    task = toys.scripted(lambda t: (t / 10, False, False, {"inner_reset": t == 2}), HORIZON)
    envs = task.make(1)
    spaces = envs.single_observation_space, envs.single_action_space
    agent = Amago(AgentSpec(task, "smoke", 0, *spaces, SLOTS, 40, SMALL, 1, tmp_path), preset)
    core, shown, done, policies, actions = agent.agent, [], [], [], []
    core.encoder.norm.moments.variance[0] = 2.0**40  # ids up to 2^20 would drown every other input
    head, act = core.actor_critic.act, agent.act

    def spy_on_the_head(policy: torch.Tensor, rng: np.random.Generator, sample: bool) -> np.ndarray:
        policies.append(policy.clone())
        actions.append(head(policy, rng, sample))
        return actions[-1]

    def spy_on_the_agent(step: VectorStep, *rest: object) -> object:
        shown.append(step)
        answer = act(step, *rest)
        done.append(answer[0])
        return answer

    monkeypatch.setattr(core.actor_critic, "act", spy_on_the_head)
    monkeypatch.setattr(agent, "act", spy_on_the_agent)
    evaluate(agent, task, evaluation_seeds(task.id, "final"), ROLLOUTS * SLOTS, SLOTS)
    assert len(shown) == HORIZON * ROLLOUTS
    np.testing.assert_array_equal(done, actions)

    for slot in range(SLOTS):
        for rollout in range(ROLLOUTS):
            steps = range(rollout * HORIZON, (rollout + 1) * HORIZON)
            fields = {
                "observation": torch.from_numpy(np.stack([shown[i].observation[slot] for i in steps])),
                "action": torch.tensor([-1, *(actions[i][slot] for i in steps[:-1])]),
                "reward": torch.tensor([0, 0.1, 0.2, 0.3]),
                "terminal": torch.zeros(HORIZON, dtype=torch.bool),
                "reset": torch.tensor([True, False, True, False]),
            }
            batch = Batch(Packing([HORIZON]), torch.arange(HORIZON), fields)
            with torch.no_grad():
                expected = core.actor_critic.policy(core.states(batch))
            torch.testing.assert_close(torch.stack([policies[i][slot] for i in steps]), expected, atol=1e-5, rtol=1e-4)
