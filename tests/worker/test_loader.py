"""An import string leads to an agent, or to one sentence that says what was found instead."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from switchroom.agent import AgentError
from switchroom.worker.loader import load_agent

AGENT = "async def agent(run):\n    yield 'hi'\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder of its own; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def refusal(spec: str) -> str:
    with pytest.raises(AgentError) as caught:
        load_agent(spec)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("spec", "file"),
    [
        ("my_agent_m", "my_agent_m.py"),
        ("my_agent_m:agent", "my_agent_m.py"),
        ("my_package_m.inner:agent", "my_package_m/inner.py"),
        ("agents/one.py", "agents/one.py"),
        ("agents/one.py:agent", "agents/one.py"),
        ("worker.py", "worker.py"),
        ("json.py", "json.py"),
    ],
)
def test_modules_and_files_are_found_from_the_working_folder(
    folder: Path, spec: str, file: str
) -> None:
    path = folder / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(AGENT)
    assert load_agent(spec).__name__ == "agent"


def test_the_attribute_may_be_another_and_nested(folder: Path) -> None:
    (folder / "nested_m.py").write_text(
        "class Bots:\n    @staticmethod\n    async def shy(run):\n        return 'no'\n"
    )
    assert load_agent("nested_m:Bots.shy").__name__ == "shy"


def test_a_file_can_import_its_neighbours(folder: Path) -> None:
    (folder / "agents").mkdir()
    (folder / "agents" / "neighbour_m.py").write_text("WORD = 'hi'\n")
    (folder / "agents" / "two.py").write_text(f"from neighbour_m import WORD\n{AGENT}")
    load_agent("agents/two.py")


def test_a_file_is_loaded_once(folder: Path) -> None:
    (folder / "once_m.py").write_text(AGENT)
    assert load_agent("once_m.py") is load_agent("once_m.py") is load_agent("once_m")


def test_an_absent_module_is_named_with_where_it_was_looked_for(folder: Path) -> None:
    assert refusal("no_such_m") == (
        f"There is no module 'no_such_m' in {folder} or among the installed packages."
    )
    assert "no_such_m.inner" in refusal("no_such_m.inner:agent")


def test_an_absent_file_is_named_and_a_near_one_offered(folder: Path) -> None:
    assert refusal("absent.py") == f"There is no file 'absent.py' in {folder}."
    (folder / "agents").mkdir()
    (folder / "agents" / "one.py").write_text(AGENT)
    assert refusal("agents/one").endswith("; did you mean agents/one.py?")


def test_an_absent_attribute_is_told_with_what_is_there(folder: Path) -> None:
    (folder / "other_m.py").write_text(
        "import os\nasync def talk(run):\n    return ''\ndef _hidden(): ...\n"
    )
    assert refusal("other_m") == "other_m has no 'agent'; it defines talk."
    (folder / "empty_m.py").write_text("")
    assert refusal("empty_m:bot").startswith("empty_m has no 'bot'; ")

    (folder / "package_m").mkdir()
    (folder / "package_m" / "__init__.py").write_text("")
    assert refusal("package_m").startswith("package_m has no 'agent'; it defines nothing")
    (folder / "package_m" / "one.py").write_text(AGENT)
    assert refusal("package_m") == (
        "package_m has no 'agent'; it is a package that holds package_m.one."
    )


def test_an_error_in_looking_up_the_attribute_is_told_as_itself(folder: Path) -> None:
    (folder / "lazy_m.py").write_text("def __getattr__(name):\n    raise RuntimeError('no GPU')\n")
    assert "RuntimeError: no GPU (lazy_m.py, line 2)" in refusal("lazy_m:bot")


@pytest.mark.parametrize(
    "spec", ["", " ", ":", ":agent", "module:", "one_m.py:", "a b", "a..b", ".a", "a."]
)
def test_a_string_that_is_none_is_told(folder: Path, spec: str) -> None:
    (folder / "one_m.py").write_text(AGENT)
    assert refusal(spec) == (
        f"{spec!r} is no import string; give module, module:attribute or path/file.py."
    )
    refusal("a:b:c")


@pytest.mark.parametrize("spec", [".", "./", "..", "/", "agents/", "./agents", "odd.py"])
def test_a_folder_is_told_with_the_files_in_it(folder: Path, spec: str) -> None:
    (folder / "odd.py").mkdir()
    (folder / "agents").mkdir()
    assert refusal(spec).startswith(f"{spec!r} is a folder; ")
    for name in "abcdefg":
        (folder / "agents" / f"{name}.py").write_text(AGENT)
    names = ", ".join(f"agents/{name}.py" for name in "abcde")
    assert refusal("agents/") == (f"'agents/' is a folder; name a Python file in it: {names}, ….")


@pytest.mark.parametrize("spec", ["notes.md", "./notes.md", "program", "notes.md:agent"])
def test_a_file_that_is_not_python_is_told(folder: Path, spec: str) -> None:
    (folder / "notes.md").write_text("hello")
    (folder / "program").write_bytes(b"\x7fELF\0")
    assert " is a file, but no Python file; give module, " in refusal(spec)


def test_a_name_that_no_file_can_have_is_told() -> None:
    assert refusal(f"x/{'a' * 300}.py").startswith("There is no file 'x/aaa")


def test_what_an_agent_says_wrongly_of_itself_is_told(folder: Path) -> None:
    (folder / "hasty_m.py").write_text(f"{AGENT}\nagent.run_limit = 'soon'\n")
    assert "`run_limit` is 'soon'" in refusal("hasty_m")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import no_such_dependency", "ModuleNotFoundError: No module named 'no_such_dependency'"),
        ("from os import nothing", "ImportError: cannot import name 'nothing'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def f(:\n    pass", "SyntaxError: invalid syntax"),
        ("import sys\nsys.exit(3)", "SystemExit: 3"),
    ],
)
@pytest.mark.parametrize("form", ["module", "file"])
def test_an_error_inside_the_agent_is_told_as_itself(
    folder: Path, code: str, said: str, form: str
) -> None:
    (folder / "broken_m.py").write_text(f"'''Line one.'''\n{code}\n")
    sentence = refusal("broken_m" if form == "module" else "broken_m.py")
    assert said in sentence
    assert "(broken_m.py, line " in sentence


def test_what_is_no_agent_is_told(folder: Path) -> None:
    (folder / "odd_m.py").write_text("agent = 7\ndef plain(run): ...\n")
    assert "int" in refusal("odd_m")
    assert "async def" in refusal("odd_m:plain")
