"""What makes scores comparable, as a short readable record with an id.

A record is {task, horizon, time_limit, evaluation: {...}, packages: {name: version}}. Its id is in every row;
rows of different protocols never share a cell. `protocols.json` beside the reference results holds the records by id.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from results.errors import UserError
from results.tablefile import replace_file

FIELDS = ("task", "horizon", "time_limit", "evaluation", "packages")


def protocol_id(record: Mapping[str, Any]) -> str:
    """8 hex digits that depend only on the record's content, not on the order of its keys."""
    if missing := [name for name in FIELDS if name not in record]:
        raise UserError(f"protocol of {record.get('task', 'an unknown task')}: {missing[0]} is missing")
    try:
        # Records used to name the split, which was always "same"; so their ids are still the ids of their protocols.
        text = json.dumps({"split": "same", **record}, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UserError(f"protocol of {record['task']}: it must be plain JSON ({error})") from None
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def registered(root: Path) -> dict[str, Any]:
    """All records of `root`/protocols.json by id; `UserError` if the file is damaged or a record was edited."""
    path = root / "protocols.json"
    if not path.exists():
        return {}
    records = read_json(path)
    for name, record in records.items():
        if not isinstance(record, dict) or protocol_id(record) != name:
            raise UserError(f"{path}: the record {name} was edited; restore it: a changed protocol has another id")
    return records


def register(record: Mapping[str, Any], root: Path) -> str:
    """Adds the record to `root`/protocols.json unless it is there, and returns its id."""
    name = protocol_id(record)
    records = registered(root)
    if name not in records:
        text = json.dumps(records | {name: record}, sort_keys=True, indent=2, allow_nan=False)
        replace_file(root / "protocols.json", f"{text}\n".encode())
    return name


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in the file; `UserError` naming the file if it is missing, damaged or not an object."""
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: the file is damaged ({error})") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: the file is damaged (it is not a JSON object)")
    return content
