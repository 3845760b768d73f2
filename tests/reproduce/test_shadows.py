"""A module of the user's that has the name of one of our packages is found and named."""

import sys
from types import ModuleType

import pytest

from reproduce.shadows import PACKAGES, shadowed


@pytest.fixture
def not_imported(monkeypatch):
    for name in PACKAGES[:3]:
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_nothing_is_shadowed_here(not_imported):
    assert shadowed() == ""


def test_a_file_is_named(not_imported, tmp_path, monkeypatch):
    (tmp_path / "analysis.py").write_text("raise RuntimeError('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert shadowed().startswith(f"Python finds {tmp_path / 'analysis.py'} under the name 'analysis'")


def test_a_package_that_is_imported_already_is_named(tmp_path, monkeypatch):
    (tmp_path / "results").mkdir()
    (tmp_path / "results/__init__.py").touch()
    monkeypatch.delitem(sys.modules, "results")
    monkeypatch.syspath_prepend(str(tmp_path))
    import results

    assert shadowed().startswith(f"Python finds {tmp_path / 'results'} under the name 'results'")
    assert results.__file__.startswith(str(tmp_path))


def test_a_folder_of_results_is_no_module(not_imported, tmp_path, monkeypatch):
    (tmp_path / "analysis").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert shadowed() == ""


def test_a_module_made_by_hand_is_left_alone(monkeypatch):
    monkeypatch.setitem(sys.modules, "analysis", ModuleType("analysis"))
    assert shadowed() == ""
