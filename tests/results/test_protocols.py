"""Protocol records and their ids."""

import json
from pathlib import Path
from typing import Any

import pytest

from results import store
from results.errors import UserError
from results.protocols import protocol_id, read_json, register, registered

Record = dict[str, Any]


def test_id_is_of_the_content(record: Record) -> None:
    name = protocol_id(record)
    assert len(name) == 8 and int(name, 16) >= 0
    assert protocol_id(dict(reversed(record.items()))) == name
    assert protocol_id(record | {"horizon": 12}) != name
    assert protocol_id(record | {"packages": {"gymnasium": "1.2.1"}}) != name


def test_id_is_pinned() -> None:
    """The ids stand in committed tables: sha256 of '{"evaluation":{},"horizon":1,...}', first 8 digits."""
    fields = {"task": "t", "horizon": 1, "time_limit": "finite", "evaluation": {}, "packages": {}}
    assert protocol_id(fields) == "ac8161b1"
    assert protocol_id(fields | {"split": "same"}) == "ac8161b1", "records used to name the split"


def test_record_is_checked(record: Record) -> None:
    with pytest.raises(UserError, match="must be plain JSON"):
        protocol_id(record | {"horizon": float("nan")})
    with pytest.raises(UserError, match="must be plain JSON"):
        protocol_id(record | {"horizon": {1, 2}})
    del record["horizon"]
    with pytest.raises(UserError, match="passive-10: horizon is missing"):
        protocol_id(record)


def test_register_adds_once(tmp_path: Path, record: Record) -> None:
    assert registered(tmp_path) == {}
    name = register(record, tmp_path)
    path = tmp_path / "protocols.json"
    before = path.read_bytes()
    assert register(record, tmp_path) == name == protocol_id(record)
    assert path.read_bytes() == before
    other = register(record | {"horizon": 12}, tmp_path)
    assert registered(tmp_path) == {name: record, other: record | {"horizon": 12}}


def test_edited_and_damaged_files_are_refused(tmp_path: Path, record: Record) -> None:
    name = register(record, tmp_path)
    path = tmp_path / "protocols.json"
    path.write_text(path.read_text().replace("11", "13"))
    with pytest.raises(UserError, match=f"protocols.json: the record {name} was edited"):
        register(record | {"horizon": 12}, tmp_path)
    for damaged in (b"", b"{", b"[]", b"\xff", b"[" * 100_000, b"null"):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"protocols.json: the file is damaged"):
            registered(tmp_path)
        assert path.read_bytes() == damaged
    with pytest.raises(UserError, match=r"gone.json: No such file"):
        read_json(tmp_path / "gone.json")


def test_committed_file_is_valid_and_written_in_our_way() -> None:
    path = Path(store.__file__).parent / "protocols.json"
    records = registered(path.parent)
    assert path.read_text() == json.dumps(records, sort_keys=True, indent=2) + "\n"
