"""A digest of the code that a study's numbers depend on: other code, other digest; other words, the same."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path

import fedkge

__all__ = ["reached_modules", "source_digest"]

_ROOT = Path(fedkge.__file__).parent.parent
_TARGET = re.compile(r"fedkge(\.\w+)+(:\w+)?")  # of a registry: imported when it is first asked for
# What shows, keeps or explains numbers and makes none. The root package only re-exports.
_SILENT = re.compile(
    r"fedkge(\.errors"
    r"|\.simulations\.(cli|report)(\..*)?"
    r"|\.simulations\.trained(\.(export|prediction|pykeen_model|rdf|rdf_terms))?"
    r"|\.simulations\.runs\.(environment|tracking)"
    r"|\.simulations\.studies\.(cells|origin|source_digest|study|published)"
    r"|\..*plots?)?"
)


@cache
def source_digest(module: str, root: Path = _ROOT) -> str | None:
    """Over the study's module and all of fedkge that it imports; None where its source is not at hand."""
    modules = reached_modules(module, root)
    if not modules:
        return None
    digest = sha256()
    for name in modules:
        path = _file(name, root)
        if path is not None:
            digest.update(f"{name}\n{_normal(path)}\n".encode())
    return digest.hexdigest()[:16]


@cache
def reached_modules(module: str, root: Path = _ROOT) -> tuple[str, ...]:
    """The module and those of fedkge that its imports lead to, by name, without what makes no numbers."""
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = _file(name, root)
        if name in seen or path is None or _SILENT.fullmatch(name):
            continue
        seen.add(name)
        waiting += [found for found in _references(_tree(path)) if found.split(".")[0] == "fedkge"]
    return tuple(sorted(seen))


def _file(module: str, root: Path) -> Path | None:
    place = root.joinpath(*module.split("."))
    candidates = (place / "__init__.py", place.with_suffix(".py"))
    return next((path for path in candidates if path.is_file()), None)


def _references(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _TARGET.fullmatch(node.value):
            yield node.value.partition(":")[0]


@cache
def _tree(path: Path) -> ast.Module:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    _WithoutWords().visit(tree)  # in place
    return ast.fix_missing_locations(tree)


@cache
def _normal(path: Path) -> str:
    return ast.unparse(_tree(path))


class _WithoutWords(ast.NodeTransformer):
    """Take out what no number depends on: docstrings, errors' messages, descriptions, types of arguments."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return ast.Pass() if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.decorator_list = [one for one in node.decorator_list if not _is_call_of(one, "study")]
        node.returns = None
        return self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        target = node.targets[0]
        is_list_of_names = isinstance(target, ast.Name) and target.id == "__all__"
        return None if is_list_of_names else self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_If(self, node: ast.If) -> ast.AST | None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return None
        return self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return ast.Raise(error, None)

    def visit_keyword(self, node: ast.keyword) -> ast.AST | None:
        return None if node.arg == "description" else self.generic_visit(node)


def _is_call_of(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
