"""`--help` is there at once, and `import fastformer` makes its models known to transformers."""

import subprocess
import sys

import pytest


def python(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True)


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_do_not_import_torch(option):
    done = python("-X", "importtime", "-m", "fastformer", option)
    assert done.returncode == 0
    loaded = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}
    assert "fastformer.cli" in loaded
    assert not loaded & {"torch", "transformers", "sklearn", "pyarrow", "matplotlib"}


def test_importing_the_package_registers_its_models():
    code = "import fastformer; from transformers import AutoConfig, AutoTokenizer, pipeline; "
    code += "print(AutoConfig.for_model('fastformer').model_type, 'TextClassifier' in dir(fastformer)); "
    code += "fastformer.TextClassifer"
    done = python("-c", code)
    assert done.stdout == "fastformer True\n"
    assert done.stderr.splitlines()[-1].startswith("AttributeError")
