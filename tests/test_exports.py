"""`__all__` in every module is complete and true."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from pathlib import Path
from types import ModuleType

import pytest

import switchroom


def modules() -> list[str]:
    def fail(name: str) -> None:
        raise AssertionError(f"{name} cannot be imported")

    found = pkgutil.walk_packages(switchroom.__path__, "switchroom.", onerror=fail)
    return ["switchroom", *(module.name for module in found)]


def defined(module: ModuleType) -> set[str]:
    """The functions and classes that the module itself defines, and does not call private."""
    assert module.__file__ is not None
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    names = {node.name for node in tree.body if isinstance(node, kinds)}
    return {name for name in names if not name.startswith("_")}


@pytest.mark.parametrize("name", modules())
def test_all_is_there_and_true(name: str) -> None:
    module = importlib.import_module(name)
    assert hasattr(module, "__all__"), f"{name} has no __all__"
    exported = module.__all__
    assert len(set(exported)) == len(exported), "a name is listed twice"
    for public in exported:
        assert hasattr(module, public), f"{name}.__all__ lists {public}, which is not there"


@pytest.mark.parametrize("name", modules())
def test_all_is_complete(name: str) -> None:
    module = importlib.import_module(name)
    missing = defined(module) - set(module.__all__)
    assert not missing, (
        f"export {missing} from {name}, or let an underscore say that they are private"
    )
