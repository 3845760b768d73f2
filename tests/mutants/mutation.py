"""Puts a fault into one function of the running program. As a pytest plugin: the mutant that $MUTANT names.

A mutant is shown every node of the syntax tree of its target and returns, for exactly one of them, what stands there
instead, as Python text. So it finds its place by what the code does there and not by how it is laid out. The module is
compiled anew and the target gets the new code, which reaches it wherever it has been imported before.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import operator
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import CodeType, FunctionType
from typing import TypeAlias

#: A node of the target -> the Python text that takes its place, or None to leave it.
Change: TypeAlias = Callable[[ast.AST], str | None]


@dataclass(frozen=True)
class Mutant:
    """A deliberate fault.

    `target` is a function, as `module:qualified.name`. `killed_by` is the test that must fail, as a node id relative to
    tests/; without brackets, one of its parametrisations at least.
    """

    target: str
    killed_by: str
    change: Change

    @property
    def name(self) -> str:
        return self.change.__name__.replace("_", " ")

    def code(self) -> CodeType:
        """The code of the target with the fault. LookupError if the target or the place in it is not there any more."""
        function = self._function()
        file, name = inspect.getfile(function), self.target.partition(":")[2]
        tree = ast.parse(Path(file).read_text())
        definition = next(node for node, path in _definitions(tree) if path == name)
        before, editor = ast.dump(definition), _Editor(self.change)
        editor.generic_visit(definition)
        if editor.changes != 1 or ast.dump(definition) == before:
            raise LookupError(f"mutant {self.name}: changes {editor.changes} places in {self.target} instead of one")
        module = compile(ast.fix_missing_locations(tree), file, "exec", dont_inherit=True)
        return next(code for code in _codes(module) if code.co_qualname == name)

    def apply(self) -> None:
        """Changes the target for the rest of this process."""
        self._function().__code__ = self.code()

    def _function(self) -> FunctionType:
        module, _, name = self.target.partition(":")
        try:
            found = operator.attrgetter(name)(importlib.import_module(module))
        except (ImportError, AttributeError) as error:
            raise LookupError(f"mutant {self.name}: there is no {self.target} any more ({error})") from error
        found = found.func if isinstance(found, cached_property) else found
        return inspect.unwrap(found)


class _Editor(ast.NodeTransformer):
    def __init__(self, change: Change) -> None:
        self.change, self.changes = change, 0

    def visit(self, node: ast.AST) -> ast.AST | list[ast.stmt]:
        text = self.change(node)
        if text is None:
            return self.generic_visit(node)
        self.changes += 1
        return ast.parse(text, mode="eval").body if isinstance(node, ast.expr) else ast.parse(text).body


def _definitions(node: ast.AST, path: str = "") -> Iterator[tuple[ast.AST, str]]:
    """The functions of a tree with their qualified names, those within functions left out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from _definitions(child, f"{path}{child.name}.")
        elif isinstance(child, ast.FunctionDef):
            yield child, f"{path}{child.name}"


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def pytest_configure() -> None:
    from tests.mutants.mutants import MUTANTS

    if name := os.environ.get("MUTANT"):
        next(mutant for mutant in MUTANTS if mutant.name == name).apply()
