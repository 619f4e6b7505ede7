"""The package as a stranger installs it: built, put into a clean environment, imported."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
FRAMEWORKS = {"asyncio", "flask", "django", "fastapi", "starlette", "werkzeug", "gevent"}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", directory, PROJECT], check=True
    )
    return directory


def test_wheel_and_sdist_have_everything(dist: Path) -> None:
    sources = {path.name for path in (PROJECT / "src/rlsidecar").glob("*") if path.is_file()}
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        packed = {Path(name).name for name in wheel.namelist() if name.startswith("rlsidecar/")}
    assert packed == sources
    assert {"py.typed", "asyncio.py", "flask.py"} <= packed
    with tarfile.open(next(dist.glob("*.tar.gz"))) as sdist:
        names = sdist.getnames()
    assert {Path(name).name for name in names if "/src/rlsidecar/" in name} == sources
    assert any(name.endswith("/README.md") for name in names)


def test_pip_install_into_a_clean_environment(tmp_path: Path) -> None:
    venv.create(tmp_path / "clean", with_pip=True)
    python = tmp_path / "clean/bin/python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", PROJECT], check=True)
    program = "from rlsidecar import Client; print(Client('/nowhere.sock').acquire('api', 'k').degraded)"
    shown = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout == "True\n"


def test_importing_loads_no_framework() -> None:
    program = "import rlsidecar, sys; print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert FRAMEWORKS.isdisjoint(shown.stdout.split())


def test_c29_the_cost_of_import_and_construction(record_property: Callable[[str, object], None]) -> None:
    """A report, for a busy machine: only what would be a wait for an agent fails."""
    program = """
import time
began = time.perf_counter()
import rlsidecar
imported = time.perf_counter()
rlsidecar.Client("/nowhere.sock", timeout=5.0)
print(imported - began, time.perf_counter() - imported)
"""
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    importing, building = map(float, shown.stdout.split())
    record_property("import_ms", round(importing * 1000, 1))
    record_property("construction_us", round(building * 1e6))
    print(f"import {importing * 1000:.1f} ms, Client() {building * 1e6:.0f} us")
    assert importing < 2
    assert building < 0.1
