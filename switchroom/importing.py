"""Import strings: `module`, `module:attribute` or `path/file.py[:attribute]` to the object named.

Promises that what is wrong comes out as one sentence that says what was found instead, and that an
error inside the imported code is told as that error, never as "module not found". The working
folder is importable. Relies on nothing of ours.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import pkgutil
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["ImportFailed", "import_object", "split_spec"]


_FORMS = "module, module:attribute or path/file.py"
_DOTTED = re.compile(r"[^\s.]+(\.[^\s.]+)*")
_MOST = 5  # names that a sentence can bear


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
    is_file = name.endswith(".py") or "/" in name or os.sep in name
    if os.path.isdir(name) and (is_file or not _DOTTED.fullmatch(name)):
        raise ImportFailed(f"{name!r} is a folder; {_files(name)}.")
    if not attribute or not (is_file or _DOTTED.fullmatch(name)):
        is_other = not is_file and os.path.isfile(name)
        what = "a file, but no Python file" if is_other else "no import string"
        raise ImportFailed(f"{spec!r} is {what}; give {_FORMS}.")
    if str(Path.cwd()) not in sys.path and "" not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    module = _from_file(Path(name)) if is_file else _from_path(name)
    found: Any = module
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ImportFailed(f"{name} has no {attribute!r}; {_holds(name, module)}.") from None
        except (Exception, SystemExit) as error:  # of a module's or an object's own __getattr__
            raise _broken(f"{name}:{attribute}", error) from error
    return found


def _from_path(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # "No module named a.b" while importing a.b.c is about the string, not about its contents.
        if error.name and f"{name}.".startswith(f"{error.name}."):
            if os.path.isfile(name):
                raise ImportFailed(
                    f"{name!r} is a file, but no Python file; give {_FORMS}."
                ) from None
            raise ImportFailed(
                f"There is no module {name!r} in {Path.cwd()} or among the installed packages."
            ) from error
        raise _broken(name, error) from error
    except (Exception, SystemExit) as error:
        raise _broken(name, error) from error


def _from_file(given: Path) -> ModuleType:
    if not os.path.isfile(given):
        python = f"{given}.py"
        hint = f"; did you mean {python}?" if os.path.isfile(python) else "."
        raise ImportFailed(f"There is no file {str(given)!r} in {Path.cwd()}{hint}")
    path = given.resolve()
    known = sys.modules.get(path.stem)
    if known and getattr(known, "__file__", None) == str(path):
        return known
    # A file may be called like a module that is loaded already: json.py, worker.py.
    name = path.stem if known is None else f"_file_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportFailed(f"{str(given)!r} is a file, but no Python file; give {_FORMS}.")
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


def _holds(name: str, module: ModuleType) -> str:
    """What could be meant instead of an attribute that is not there."""
    names = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and callable(value)
        and getattr(value, "__module__", None) == module.__name__
    ]
    if names:
        return f"it defines {_some(names)}"
    if path := getattr(module, "__path__", None):
        inner = [f"{name}.{found.name}" for found in pkgutil.iter_modules(path)]
        if inner := sorted(each for each in inner if "._" not in each):
            return f"it is a package that holds {_some(inner)}"
    return "it defines nothing that could be meant"


def _files(folder: str) -> str:
    """What could be meant instead of a folder."""
    with contextlib.suppress(OSError):
        files = [str(file) for file in Path(folder).glob("[!_]*.py") if file.is_file()]
        if files:
            return f"name a Python file in it: {_some(sorted(files))}"
    return f"give {_FORMS}"


def _some(names: list[str]) -> str:
    return ", ".join(names[:_MOST]) + (", …" if len(names) > _MOST else "")
