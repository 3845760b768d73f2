"""The faults that matter most in work of this kind, and for each the test that finds it.

A mutant is a function of a syntax node; `text` turns the parts of the node that it keeps back into Python.
"""

from __future__ import annotations

import ast
from ast import unparse as text
from collections.abc import Callable

from tests.mutants.mutation import Change, Mutant

MUTANTS: list[Mutant] = []


def mutant(target: str, killed_by: str) -> Callable[[Change], Change]:
    def add(change: Change) -> Change:
        MUTANTS.append(Mutant(target, killed_by, change))
        return change

    return add


# --- the losses and the learner --------------------------------------------------------------------------------------

LOSSES = "amago_core.agent:Agent.losses"
DISCRETE = "amago_core.nets.actor_critic:DiscreteActorCritic.evaluate_actions"
CONTINUOUS = "amago_core.nets.actor_critic:ContinuousActorCritic.evaluate_actions"
TWO_PASSES = "amago_core/test_losses.py::test_loss_and_gradients_equal_the_two_pass_reference"
ROUTES = "amago_core/test_losses.py::test_the_online_term_reaches_policy_and_encoder_and_no_critic"


@mutant(LOSSES, TWO_PASSES)
def the_sign_of_the_advantage(node):
    match node:
        case ast.Assign([ast.Name("advantage")], ast.BinOp(taken, ast.Sub(), policy)):
            return f"advantage = {text(policy)} - ({text(taken)})"


@mutant(LOSSES, TWO_PASSES)
def no_bootstrap(node):
    match node:
        case ast.Call(ast.Attribute(_, "value")):
            return f"0 * {text(node)}"


@mutant(LOSSES, TWO_PASSES)
def the_reward_of_the_step_before(node):
    match node:
        case ast.Subscript(ast.Subscript(_, ast.Constant("reward")) as reward):
            return f"{text(reward)}[current]"


@mutant(LOSSES, TWO_PASSES)
def a_terminal_ignored(node):
    match node:
        case ast.UnaryOp(ast.Invert(), ast.Subscript(ast.Subscript(_, ast.Constant("terminal"))) as terminal):
            return f"torch.ones_like({text(terminal)})"


@mutant(LOSSES, TWO_PASSES)
def one_discount_for_all(node):
    match node:
        case ast.Attribute(_, "discounts"):
            return f"{text(node)}[-1]"


@mutant(DISCRETE, ROUTES)
def critics_not_detached_in_the_online_term(node):
    match node:
        case ast.Call(ast.Attribute(table, "detach")):
            return text(table)


@mutant(CONTINUOUS, ROUTES)
def parameters_not_detached_in_the_online_term(node):
    match node:
        case ast.DictComp(name, ast.Call(ast.Attribute(parameter, "detach")), [each]):
            return f"{{{text(name)}: {text(parameter)} {text(each)}}}"


@mutant(CONTINUOUS, ROUTES)
def state_not_detached_in_the_online_term(node):
    match node:
        case ast.Call(ast.Attribute(ast.Name("state"), "detach")):
            return "state"


@mutant(DISCRETE, "amago_core/test_actor_critic.py::test_the_expectation_over_actions_is_exact")
def the_minimum_before_the_expectation(node):
    match node:
        case ast.Call(ast.Attribute(table, "detach")):
            return f"{text(node)}.amin(0).expand_as({text(table)})"


@mutant("amago_core.nets.popart:PopArt.update", "amago_core/test_popart.py::test_an_update_preserves_every_value")
def values_not_preserved_by_popart(node):
    match node:
        case ast.Expr(ast.Call(ast.Attribute(ast.Attribute(_, "w"), "mul_"))):
            return "pass"


@mutant("amago_core.learner:Learner.update", "amago_core/test_learner.py::test_targets_follow_at_their_rate")
def targets_never_moved(node):
    match node:
        case ast.Expr(ast.Call(ast.Attribute(_, "_foreach_lerp_"))):
            return "pass"


@mutant(
    "amago_core.learner:Learner.update", "amago_core/test_learner.py::test_the_norm_of_the_summed_gradient_is_clipped"
)
def the_gradient_not_clipped(node):
    match node:
        case ast.Call(ast.Attribute(_, "clip_grad_norm_") as clip, [parameters, _]):
            return f"{text(clip)}({text(parameters)}, float('inf'))"


# --- memory ----------------------------------------------------------------------------------------------------------

AGREE = "amago_core/test_sequence_models.py::test_actors_at_different_timesteps_agree_across_resets_and_past_the_window"
AS_LEARNED = "amago_core/test_collect.py::test_policies_in_collection_are_those_of_learning"


@mutant("amago_core.nets.recurrent:GRU.step", AGREE)
def memory_kept_across_rollouts(node):
    match node:
        case ast.Expr(ast.Call(ast.Attribute(_, "masked_fill_"))):
            return "pass"


@mutant("amago_core.nets.cache:KeyValueCache.begin", AGREE)
def the_cache_not_cleared(node):
    match node:
        case ast.Assign([ast.Attribute(_, "_visible")], visible):
            return f"self._visible = ({text(visible)}) | True"


@mutant("amago_core.acting:Actor.step", AS_LEARNED)
def memory_reset_at_inner_episodes(node):
    match node:
        case ast.Assign([ast.Attribute(_, "position")], ast.Call(where, [first, *rest])):
            return f"self.position = {text(where)}({text(first)} | inner_reset, {', '.join(map(text, rest))})"


IN_EVALUATION = "benchmarks/test_amago.py::test_memory_lives_from_the_first_to_the_last_step_of_a_rollout"


@mutant("benchmarks.agents.amago:Amago.act", IN_EVALUATION)
def memory_reset_at_every_step_of_an_evaluation(node):
    match node:
        case ast.BoolOp(_, [_, fresh]):
            return text(fresh)


@mutant(
    "amago_core.nets.blocked:BlockedAttention.forward",
    "amago_core/test_sequence_models.py::test_the_past_does_not_depend_on_the_future_nor_on_other_sequences",
)
def no_causal_mask(node):
    match node:
        case ast.Call(ast.Attribute(_, "triu_")):
            return f"{text(node)}.zero_()"


@mutant("amago_core.sampler:Sampler._pack", "amago_core/test_replay.py::test_every_raw_start_is_as_likely")
def positions_off_by_one(node):
    match node:
        case ast.Assign([ast.Name("position")], position):
            return f"position = {text(position)} + 1"


# --- what is stored and drawn ----------------------------------------------------------------------------------------


@mutant(LOSSES, f"{TWO_PASSES}[continuous]")
def the_action_of_the_step_before(node):
    match node:
        case ast.Subscript(ast.Subscript(_, ast.Constant("action")) as action):
            return f"{text(action)}[current]"


@mutant(
    "amago_core.collect:Collector._step",
    "amago_core/test_collect.py::test_stored_tokens_equal_the_rollouts_that_were_played",
)
def an_action_stored_beside_the_observation_that_it_answers(node):
    match node:
        case ast.Expr(ast.Call(ast.Attribute(_, "_write"), [ast.Name("position")])):
            return f"actor.previous = policy; {text(node)}"


DRAWN_ALIKE = "amago_core/test_sampler.py::test_every_transition_comes_up_as_often"


@mutant("amago_core.sampler:Sampler._cut", DRAWN_ALIKE)
def the_ends_of_long_rollouts_starved(node):
    match node:
        case ast.Assign([ast.Name("starts")]):
            return "raw = starts = np.clip(raw, 0, np.maximum(transitions - context, 0))"


@mutant(
    "amago_core.sampler:Sampler._within_budget",
    "amago_core/test_replay.py::test_the_slice_that_crosses_the_budget_opens_the_next_batch",
)
def the_waiting_slice_lost(node):
    match node:
        case ast.Assign([ast.Attribute(_, "_waiting")], ast.Name("piece")):
            return "pass"


# --- exploration and evaluation --------------------------------------------------------------------------------------


@mutant(
    "amago_core.exploration:Exploration.apply",
    "amago_core/test_collect.py::test_exploration_ends_when_it_is_annealed",
)
def exploration_never_annealed(node):
    match node:
        case ast.Call(ast.Attribute(_, "epsilon") as epsilon, [position, _]):
            return f"{text(epsilon)}({text(position)}, 0)"


@mutant("benchmarks.agents.amago:Amago.act", IN_EVALUATION)
def exploration_left_on_in_evaluation(node):
    match node:
        case ast.Assign([ast.Attribute(_, "previous")], actions):
            return (
                "from amago_core.exploration import Exploration\n"
                "noise = Exploration(self.config, self.agent.actions, 1, len(step.first), rng)\n"
                f"actor.previous = noise.apply({text(actions)}, actor.position, 0)"
            )


@mutant(
    "benchmarks.gate.evaluate:evaluate",
    "benchmarks/gate/test_evaluate.py::test_rollouts_have_the_seeds_of_the_evaluating_role",
)
def evaluation_on_the_seeds_of_training(node):
    match node:
        case ast.Constant("evaluate"):
            return "'train'"


@mutant("benchmarks.gate.evaluate:_reset", "benchmarks/gate/test_evaluate.py::test_instances_are_balanced")
def unequal_instances(node):
    match node:
        case ast.Assign([ast.Subscript(_, ast.Constant("instance")) as wanted], instances):
            return f"{text(wanted)} = {text(instances)} * 0"


# --- statistics and results ------------------------------------------------------------------------------------------


@mutant("analysis.stats:share_interval", "analysis/test_stats.py::test_share_interval_by_hand")
def one_tail_for_two(node):
    match node:
        case ast.BinOp(both_sides, ast.Div(), ast.Constant(2)):
            return text(both_sides)


@mutant("analysis.frames:scores", "analysis/test_table.py::test_the_number_of_episodes_does_not_narrow_the_interval")
def episodes_counted_as_runs(node):
    match node:
        case ast.Return(runs):
            return f"rows = {text(runs)}\nreturn rows.loc[rows.index.repeat(100)].reset_index(drop=True)"


@mutant("results.store:unique", "results/test_store.py::test_merge_refuses_duplicates_in_the_reference")
def a_duplicate_key_accepted(node):
    match node:
        case ast.Raise():
            return "pass"
