"""Models by name, as folders here: those that an installed package brings along, and those of the Hugging Face Hub.

A model of the Hub is downloaded once, and found in the library's cache without network. Only what we read comes down:
weights as safetensors, configurations and tokenizers. Nothing that can run.
"""

import re
from functools import cache
from pathlib import Path

from huggingface_hub import HfApi, snapshot_download

from fastformer.errors import UserError
from fastformer.runs.folder import installed_run

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_FILES = ["*.safetensors", "*.json", "*.txt", "*.model", "*/*.safetensors", "*/*.json"]


def local_folder(name: str | Path) -> Path:
    """A path as it is; an installed model or one of the Hub, `owner/name`, as the folder that holds it."""
    path = Path(name).expanduser()
    if not path.exists() and (installed := installed_run(str(name))) is not None:
        return installed
    owner = str(name).partition("/")[0]
    if path.exists() or not _NAME.fullmatch(str(name)) or Path(owner).is_dir():
        return path
    return _downloaded(str(name))


@cache
def _downloaded(name: str) -> Path:
    problem: Exception | None = None
    try:
        HfApi().model_info(name, timeout=10)  # asks once, where a download would try again for a minute
    except Exception as error:  # no network, a proxy, no such model: there are many
        problem = error
    try:
        return Path(snapshot_download(name, allow_patterns=_FILES, local_files_only=problem is not None))
    except Exception as error:
        reason = " ".join(str(problem or error).split())[:200]
        raise UserError(
            f"{name}: no such file or folder here, and the Hugging Face Hub does not give it ({reason}); check the name"
        ) from None
