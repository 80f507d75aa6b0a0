"""`--help` is there at once, and `import fastformer` makes its models known to transformers without importing it."""

import importlib
import subprocess
import sys

import pytest

from fastformer.lazy import when_imported


def python(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True)


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_do_not_import_torch(option):
    done = python("-X", "importtime", "-m", "fastformer", option)
    assert done.returncode == 0
    loaded = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}
    assert "fastformer.cli" in loaded
    assert not loaded & {"torch", "transformers", "sklearn", "pyarrow", "matplotlib"}


def test_importing_the_package_imports_no_torch():
    code = "import sys, fastformer; names = dir(fastformer); "
    code += "print(set(fastformer.__all__) <= set(names), {'torch', 'transformers', 'sklearn'} & set(sys.modules))"
    assert python("-c", code).stdout == "True set()\n"


@pytest.mark.parametrize("first", ["fastformer", "transformers"])
def test_importing_the_package_registers_its_models(first):
    code = f"import {first}, fastformer; from transformers import AutoConfig, AutoTokenizer, pipeline; "
    code += "print(AutoConfig.for_model('fastformer').model_type, 'TextClassifier' in dir(fastformer)); "
    code += "fastformer.TextClassifer"
    done = python("-c", code)
    assert done.stdout == "fastformer True\n"
    assert done.stderr.splitlines()[-1].startswith("AttributeError")


@pytest.mark.parametrize("module", ["nltk_words", "tokenizers", "tokenizer_training"])
def test_a_module_may_be_imported_first(module):
    """Its own import of transformers registers the models, and the tokenizers that it is about to define."""
    code = f"import fastformer.data.{module}; from transformers import AutoConfig; AutoConfig.for_model('fastformer')"
    done = python("-c", code)
    assert done.returncode == 0, done.stderr


class TestWaiting:
    @pytest.fixture
    def library(self, tmp_path, monkeypatch):
        (tmp_path / "some_library.py").write_text("ready = True\n")
        monkeypatch.syspath_prepend(tmp_path)
        yield "some_library"
        sys.modules.pop("some_library", None)

    def test_is_told_once_the_library_is_there(self, library):
        found = []
        when_imported(library, lambda: found.append(sys.modules[library].ready))
        import json  # noqa: F401

        assert found == []
        for _ in range(2):
            importlib.import_module(library)
        assert found == [True]
        when_imported(library, lambda: found.append("at once"))
        assert found == [True, "at once"]

    def test_two_may_wait(self, library):
        found = []
        for number in (1, 2):
            when_imported(library, lambda number=number: found.append(number))
        importlib.import_module(library)
        assert sorted(found) == [1, 2]

    def test_a_library_that_is_not_there_stays_missing(self):
        when_imported("no_such_library", lambda: None)
        with pytest.raises(ModuleNotFoundError, match="no_such_library"):
            importlib.import_module("no_such_library")
