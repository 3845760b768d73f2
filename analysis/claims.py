"""A claim of the paper as data: the dataclass and the checked reader of `reproduce/claims.yaml`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import yaml

from analysis.figures import figures
from analysis.rules import KINDS, Rule
from results.errors import UserError
from results.schema import TIERS

SCHEMA = 1


class ClaimError(UserError):
    """A fault in a claims file; the message is one line that names the file, the line and the claim."""


@dataclass(frozen=True)
class Published:
    """The paper's number for a claim, and where the paper gives it."""

    value: float
    where: str


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
    claims: dict[str, Claim] = {}
    for entry in document["claims"]:
        claim = _claim(entry, path)
        for fault in _faults(claim, claims):
            raise ClaimError(f"{path}:{entry[_LINE]}: claim {claim.id}: {fault}")
        claims[claim.id] = claim
    return list(claims.values())


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
    return Claim(**_values(Claim, entry, where))


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
        return _rule(value, where) if hint is Rule else hint(**_values(hint, value, where))
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


def _rule(entry: Mapping[str, Any], where: str) -> Rule:
    """The rule of the kind that `entry` names; each kind has its own keys."""
    if "kind" not in entry:
        raise ClaimError(f"{where}: 'kind' is missing")
    name = _convert(str, entry["kind"], f"{where}: 'kind'")
    if name not in KINDS:
        raise ClaimError(f"{where}: unknown kind '{name}' (known: {', '.join(KINDS)})")
    return KINDS[name](**_values(KINDS[name], entry, where))


def _faults(claim: Claim, earlier: Mapping[str, Claim]) -> Iterator[str]:
    """What types cannot express. A fault may rest on the absence of those before it, so only the first counts."""
    restated = earlier.get(claim.restates) if claim.restates is not None else None
    if claim.id in earlier:
        yield f"id '{claim.id}' is used twice"
    if claim.tier not in TIERS:
        yield f"unknown tier '{claim.tier}' (known: {', '.join(TIERS)})"
    if claim.restates is not None and (restated is None or restated.tier != "paper"):
        yield f"restates '{claim.restates}', which is no earlier claim of the paper tier"
    if claim.tier != "paper" and claim.restates is None:
        yield "a claim below the paper tier must say what it 'restates'"
    if claim.tier == "paper" and claim.restates is not None:
        yield "a claim of the paper tier restates nothing"
    yield from claim.rule.faults()
    yield from _faults_of_the_plan(claim)


def _faults_of_the_plan(claim: Claim) -> Iterator[str]:
    """A rule that the planned runs of its figure can never satisfy would always be inconclusive."""
    rule, known = claim.rule, figures()
    if claim.figure not in known:
        yield f"unknown figure '{claim.figure}' (known: {', '.join(known)})"
    figure = known[claim.figure]
    cells = figure.cells(claim.tier) if claim.tier in figure.runs else ()
    planned = {(task, agent): seeds for task, agent, seeds in cells}
    for agent in rule.agents:
        if strange := [task for task in rule.tasks if (task, agent) not in planned]:
            yield f"figure {claim.figure} has no run of {agent} on {strange[0]} at the tier {claim.tier}"
    most = rule.counted([planned[task, rule.agents[0]] for task in rule.tasks])  # an agent's; all have as many
    if rule.minimum_seeds > most:
        yield (
            f"minimum_seeds is {rule.minimum_seeds}, but figure {claim.figure} plans {most} at the tier {claim.tier}"
        )
