"""Import strings: `module`, `module:attribute` or `path/file.py[:attribute]` to the object named.

Promises that what is wrong comes out as one sentence that says what was found instead, and that an
error inside the imported code is told as that error, never as "module not found". The working
folder is importable. Relies on nothing of ours.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["ImportFailed", "import_object", "split_spec"]


class ImportFailed(Exception):
    """An import string leads to nothing; the text is one sentence. The cause is the inner error."""


def split_spec(spec: str, *, default: str) -> tuple[str, str]:
    """The module or file of an import string, and its attribute or else `default`."""
    # A colon may also belong to a drive, C:\agent.py: only what follows .py or a name counts.
    match = re.fullmatch(r"(.*\.py|[^:]*)(?::(.*))?", spec.strip())
    module, attribute = match.groups() if match else (spec, None)
    return module, attribute if attribute is not None else default


def import_object(spec: str, *, default: str) -> Any:
    """The object that `spec` names; its attribute is `default` if the string has none.

    Raises ImportFailed.
    """
    name, attribute = split_spec(spec, default=default)
    if not name or not attribute:
        raise ImportFailed(
            f"{spec!r} is no import string; give module, module:attribute or path/file.py."
        )
    if str(Path.cwd()) not in sys.path and "" not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    is_file = name.endswith(".py") or os.sep in name
    module = _from_file(Path(name)) if is_file else _from_path(name)
    found: Any = module
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ImportFailed(f"{name} has no {attribute!r}; {_holds(module)}.") from None
    return found


def _from_path(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # "No module named a.b" while importing a.b.c is about the string, not about its contents.
        if error.name and f"{name}.".startswith(f"{error.name}."):
            raise ImportFailed(
                f"There is no module {name!r} in {Path.cwd()} or among the installed packages."
            ) from error
        raise _broken(name, error) from error
    except (Exception, SystemExit) as error:
        raise _broken(name, error) from error


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        python = path.with_name(f"{path.name}.py")
        hint = f"; did you mean {python}?" if python.is_file() else "."
        raise ImportFailed(f"There is no file {str(path)!r} in {Path.cwd()}{hint}")
    path = path.resolve()
    known = sys.modules.get(path.stem)
    if known and getattr(known, "__file__", None) == str(path):
        return known
    # A file may be called like a module that is loaded already: json.py, worker.py.
    name = path.stem if known is None else f"_file_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportFailed(f"{path} is no Python file.")
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))  # as for `python file.py`: its neighbours
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _broken(path.name, error) from error
    return module


def _broken(name: str, error: BaseException) -> ImportFailed:
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{Path(error.filename).name}, line {error.lineno}"
    else:
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if "importlib" not in frame.filename and frame.filename != __file__
        ]
        where = f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
    reason = str(error).partition("\n")[0] if not isinstance(error, SyntaxError) else error.msg
    at = f" ({where})" if where else ""
    return ImportFailed(f"Importing {name} fails with {type(error).__name__}: {reason}{at}.")


def _holds(module: ModuleType) -> str:
    names = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and callable(value)
        and getattr(value, "__module__", None) == module.__name__
    ]
    return f"it defines {', '.join(names)}" if names else "it defines nothing that could be meant"
