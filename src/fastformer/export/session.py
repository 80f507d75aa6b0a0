"""onnxruntime's side of an export: its file, the names of what goes out, a session. Imports no PyTorch."""

from pathlib import Path
from typing import Any

from fastformer.errors import UserError

MODEL_FILE = "model.onnx"
LOGITS, TEXT_VECTOR = "logits", "pooler_output"


def open_session(path: Path, threads: int) -> Any:
    """Load a model.onnx; 0 threads are as many as there are cores."""
    try:
        import onnxruntime
    except ImportError:
        raise UserError(f"{path}: needs onnxruntime to run; run: pip install onnxruntime") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # errors: its warnings speak to its developers
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    options.add_session_config_entry("session.force_spinning_stop", "1")  # between calls the cores are for others
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exceptions share no class of their own
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"{path}: cannot be loaded ({reason}); export the run again") from error


def run_session(session: Any, name: str, outputs: list[str], inputs: dict[str, Any]) -> list[Any]:
    """The outputs of a graph; one that cannot read what its own tokenizer makes of a text is damaged."""
    try:
        return session.run(outputs, inputs)
    except Exception as error:  # as above
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"{name}: the exported graph fails ({reason}); export the run again") from error
