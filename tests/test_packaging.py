"""What is published works where it is installed: beside a user's own worker.py and store.py."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("gateway", "store", "worker")


def run(*command: str | Path, cwd: Path, **environ: str) -> str:
    # A path of its own, and no settings of the machine's pip: nothing may be fetched.
    done = subprocess.run(
        command, cwd=cwd, env={"PATH": "", **environ}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the wheel is installed."""
    folder = tmp_path_factory.mktemp("site")
    options = ("--isolated", "--no-index", "--no-deps", "--disable-pip-version-check", "--target")
    run(sys.executable, "-m", "pip", "install", *options, folder, wheel, cwd=folder)
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's folder, whose modules are called like our parts."""
    for name in FOLDERS:
        (tmp_path / f"{name}.py").write_text(f"theirs = {name!r}\n")
    return tmp_path


def test_the_wheel_holds_every_file_once(wheel: Path) -> None:
    sources = {
        f"switchroom/{path.relative_to(ROOT)}".replace("switchroom/switchroom/", "switchroom/")
        for folder in (*FOLDERS, "switchroom")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with ZipFile(wheel) as archive:
        held = [name for name in archive.namelist() if not name.startswith("switchroom-")]
    assert len(held) == len(set(held))
    # rglob follows the links on some Pythons; either way a file has one name in the wheel.
    assert set(held) == sources
    assert "switchroom/py.typed" in held


def test_our_parts_and_their_modules_live_side_by_side(site: Path, project: Path) -> None:
    program = (
        "import importlib, pkgutil\n"
        "import switchroom, gateway, store, worker\n"
        "for part in pkgutil.walk_packages(switchroom.__path__, 'switchroom.'):\n"
        "    importlib.import_module(part.name)\n"
        "print(switchroom.__file__)\n"
        "ours = (switchroom.gateway, switchroom.store, switchroom.worker)\n"
        "print(*(part.__file__ for part in ours))\n"
        "print(gateway.theirs, store.theirs, worker.theirs)\n"
    )
    ours, parts, theirs = run(
        sys.executable, "-c", program, cwd=project, PYTHONPATH=str(site)
    ).splitlines()
    assert ours == str(site / "switchroom" / "__init__.py")
    assert all(part.startswith(str(site)) for part in parts.split())
    assert theirs == "gateway store worker"


def test_the_command_is_installed(site: Path, project: Path) -> None:
    command = site / "bin" / "switchroom"
    said = run(sys.executable, command, "--version", cwd=project, PYTHONPATH=str(site))
    assert said.startswith("switchroom, version ")


@pytest.mark.parametrize(
    "name", ["requirements.lock", "requirements-dev.lock", "requirements-sdk03.lock"]
)
def test_a_lock_has_hashes_and_names_neither_registry_nor_machine(name: str) -> None:
    lines = (ROOT / name).read_text().splitlines()
    pins = [line for line in lines if not line.startswith(" ")]
    hashes = [line for line in lines if line.startswith("    --hash=sha256:")]
    assert len(pins) + len(hashes) == len(lines)
    assert all(re.fullmatch(r"[a-z0-9-]+(\[[a-z,]+\])?==[\w.]+( ; .+)? \\", pin) for pin in pins)
