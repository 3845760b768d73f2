"""A claim of the paper as data: the dataclasses and the checked reader of `reproduce/claims.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import yaml

from analysis.figures import FIGURES
from analysis.scores import CLAIM_METRICS
from results.errors import UserError
from results.schema import TIERS

SCHEMA = 1
SHARE_KINDS = ("solved_share", "below")
KINDS = (*SHARE_KINDS, "comparison", "mean")
METRICS = ("return", "success", *CLAIM_METRICS)
COMPARISON_SEEDS = 5  # with fewer per agent the power is too low for a verdict, whatever the p value


class ClaimError(UserError):
    """A fault in a claims file; the message is one line that names the file, the line and the claim."""


@dataclass(frozen=True)
class Published:
    """The paper's number for a claim, and where the paper gives it."""

    value: float
    where: str


@dataclass(frozen=True)
class Rule:
    """How scores decide a claim. `reproduce/claims.yaml` explains the kinds."""

    kind: str
    agents: tuple[str, ...]
    tasks: tuple[str, ...]
    metric: str
    threshold: float  # solved_share, below: of a seed's score; comparison: the difference to reach; mean: the mean
    confidence: float  # of each bound, or 1 - the level of the permutation test
    minimum_seeds: int
    share: float = 0.5  # of seeds, that solved_share and below must exceed; not used by the other kinds


@dataclass(frozen=True)
class Claim:
    """One testable sentence of the paper, or its restatement for a smaller tier."""

    id: str
    figure: str
    tier: str
    statement: str
    source: str
    published: Published
    rule: Rule
    restates: str | None = None
    note: str | None = None


def load_claims(path: Path) -> list[Claim]:
    """The claims of `path`, in order. Raises `ClaimError` on the first fault, with its line."""
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=_LineLoader)
    except RecursionError:
        raise ClaimError(f"{path}: not readable as YAML (nested too deeply)") from None
    except OSError as error:
        raise ClaimError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise ClaimError(f"{path}: is not UTF-8 text") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = " ".join(str(getattr(error, "problem", None) or error).split())
        raise ClaimError(f"{where}: not readable as YAML ({problem})") from None
    schema = document.get("schema") if isinstance(document, dict) else None
    if not isinstance(document, dict) or type(schema) is not int or schema != SCHEMA:
        raise ClaimError(f"{path}: must start with 'schema: {SCHEMA}'")
    if set(document) - {_LINE} != {"schema", "claims"} or not isinstance(document["claims"], list):
        raise ClaimError(f"{path}: must hold 'schema' and the list 'claims', and nothing else")
    claims: list[Claim] = []
    for entry in document["claims"]:
        claims.append(_claim(entry, path))
        _check(claims, f"{path}:{entry[_LINE]}: claim {claims[-1].id}")
    return claims


_LINE = "__line__"


class _LineLoader(yaml.SafeLoader):
    """Safe YAML that remembers the line of each mapping and refuses a key given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        mapping = super().construct_mapping(node, deep=True)
        if len(mapping) < len(node.value):
            raise yaml.MarkedYAMLError(problem="a key is given twice in this mapping", problem_mark=node.start_mark)
        mapping[_LINE] = node.start_mark.line + 1
        return mapping


def _claim(entry: Any, path: Path) -> Claim:
    if not isinstance(entry, dict):
        raise ClaimError(f"{path}: a claim must be a mapping, not {entry!r}")
    where = f"{path}:{entry[_LINE]}: claim {entry.get('id', '(without id)')}"
    values = _values(Claim, entry, where)
    return Claim(**values)


def _values(kind: type, entry: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The fields of a dataclass from a mapping: unknown, missing and mistyped keys are faults."""
    known = {field.name: field for field in fields(kind)}
    given = {key: value for key, value in entry.items() if key != _LINE}
    if unknown := sorted(str(key) for key in set(given) - set(known)):
        raise ClaimError(f"{where}: unknown key '{unknown[0]}' (known: {', '.join(known)})")
    required = {name for name, field in known.items() if field.default is MISSING}
    if missing := sorted(required - set(given)):
        raise ClaimError(f"{where}: '{missing[0]}' is missing")
    hints = get_type_hints(kind)
    return {key: _convert(hints[key], value, f"{where}: '{key}'") for key, value in given.items()}


def _convert(hint: Any, value: Any, where: str) -> Any:
    if hint in (Published, Rule):
        if not isinstance(value, dict):
            raise ClaimError(f"{where} must be a mapping, not {value!r}")
        return hint(**_values(hint, value, where))
    if hint == tuple[str, ...]:
        if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
            raise ClaimError(f"{where} must be a list of names, not {value!r}")
        return tuple(value)
    accepted = get_args(hint) or (hint,)
    if float in accepted and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, accepted) or isinstance(value, bool):
        raise ClaimError(f"{where} must be {accepted[0].__name__}, not {value!r}")
    return value


def _check(claims: list[Claim], where: str) -> None:
    """Checks of the last claim read that types cannot express."""
    claim, earlier = claims[-1], {each.id: each for each in claims[:-1]}
    rule = claim.rule
    limit = 1 - rule.confidence + 1e-12
    agents = 2 if rule.kind == "comparison" else 1
    faults = {
        f"id '{claim.id}' is used twice": claim.id in earlier,
        f"unknown tier '{claim.tier}' (known: {', '.join(TIERS)})": claim.tier not in TIERS,
        f"unknown kind '{rule.kind}' (known: {', '.join(KINDS)})": rule.kind not in KINDS,
        f"unknown metric '{rule.metric}' (known: {', '.join(METRICS)})": rule.metric not in METRICS,
        f"restates '{claim.restates}', which is no earlier claim of the paper tier": claim.restates is not None
        and (claim.restates not in earlier or earlier[claim.restates].tier != "paper"),
        "a claim below the paper tier must say what it 'restates'": claim.tier != "paper" and claim.restates is None,
        "a claim of the paper tier restates nothing": claim.tier == "paper" and claim.restates is not None,
        f"kind '{rule.kind}' needs {agents} agent(s), not {len(rule.agents)}": len(rule.agents) != agents,
        "a task or an agent is named twice": len({*rule.tasks, *rule.agents}) < len(rule.tasks) + len(rule.agents),
        f"confidence {rule.confidence} is not between 0.5 and 1": not 0.5 < rule.confidence < 1,
        f"share {rule.share} is not between 0 and 1": not 0 < rule.share < 1,
        f"threshold {rule.threshold} is not a finite number": not abs(rule.threshold) < float("inf"),
        f"a comparison needs minimum_seeds of {COMPARISON_SEEDS} or more": rule.kind == "comparison"
        and rule.minimum_seeds < COMPARISON_SEEDS,
        f"{rule.minimum_seeds} seeds cannot show a share above {rule.share} at confidence {rule.confidence}": (
            rule.kind in SHARE_KINDS and (rule.minimum_seeds < 1 or rule.share**rule.minimum_seeds > limit)
        ),
        "a mean needs minimum_seeds of 2 or more, for an interval": rule.kind == "mean" and rule.minimum_seeds < 2,
    }
    for message, fault in faults.items():
        if fault:
            raise ClaimError(f"{where}: {message}")
    _check_plan(claim, where)


def _check_plan(claim: Claim, where: str) -> None:
    """Refuses a rule that the planned runs of its figure can never satisfy: it would always be inconclusive."""
    rule = claim.rule
    if claim.figure not in FIGURES:
        raise ClaimError(f"{where}: unknown figure '{claim.figure}' (known: {', '.join(FIGURES)})")
    figure = FIGURES[claim.figure]
    cells = figure.cells(claim.tier) if claim.tier in figure.runs else ()
    planned = {(task, agent): seeds for task, agent, seeds in cells}
    for agent in rule.agents:
        if strange := [task for task in rule.tasks if (task, agent) not in planned]:
            raise ClaimError(
                f"{where}: figure {claim.figure} has no run of {agent} on {strange[0]} at the tier {claim.tier}"
            )
    seeds = [planned[task, rule.agents[0]] for task in rule.tasks]  # the same for each agent that plays a task
    most = sum(seeds) if rule.kind == "comparison" else min(seeds)
    if rule.minimum_seeds > most:
        raise ClaimError(
            f"{where}: minimum_seeds is {rule.minimum_seeds}, but figure {claim.figure} plans {most} at the tier "
            f"{claim.tier}"
        )
