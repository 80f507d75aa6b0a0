"""A mixer that only these tests know, and one helper process for all that measure memory: it takes seconds to start."""

import importlib
import os
import sys

import pytest

from fastformer.bench.memory import MemoryProbe
from fastformer.mixers import registry


@pytest.fixture
def toy(monkeypatch) -> str:
    """Register the toy mixer for one test; its name."""
    monkeypatch.setattr(registry, "_MIXERS", dict(registry._MIXERS))
    sys.modules.pop("tests.bench.toy", None)
    importlib.import_module("tests.bench.toy")
    return "toy"


@pytest.fixture(scope="session")
def probe(tmp_path_factory) -> MemoryProbe:
    """A real probe, to which a module `doomed` is known that kills whoever imports it."""
    if not hasattr(os, "fork"):
        pytest.skip("memory is measured in forked processes")
    folder = tmp_path_factory.mktemp("modules")
    (folder / "doomed.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        with MemoryProbe() as probe:
            yield probe
