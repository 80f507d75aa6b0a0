"""Runs that another process can import: they add a line to a log, and end as their job says."""

import os
import signal
import sys
import time
from pathlib import Path

from fastformer.errors import Interrupted, UserError
from fastformer.paper.grid import Job, run_grid
from fastformer.runs.folder import InUse


def train(job: Job, folder: Path, show: bool) -> dict:
    if job.inputs.get("in_use") and not Path(job.inputs["log"]).with_name("free").exists():
        raise InUse("another command is writing there")
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"weights")
    with open(job.inputs["log"], "a", encoding="utf-8") as log:
        log.write(f"{job.name}\n")
    if job.inputs.get("end") == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if job.inputs.get("end") == "waiting":
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            (folder / "stopped").write_text(str(os.getpid()), encoding="utf-8")
            raise
    if job.inputs.get("end") == "stopped":
        raise Interrupted("stopped at step 3 of 9")
    if job.inputs.get("end") == "mistaken":
        raise UserError("the disk is full")
    if job.inputs.get("end") == "broken":
        raise ZeroDivisionError("a bug")
    return {"score": job.settings["seed"] + 0.5, "process": os.getpid()}


if __name__ == "__main__":  # a grid whose only run waits until it is told to stop
    folder = Path(sys.argv[1])
    inputs = {"log": str(folder / "log"), "end": "waiting"}
    run_grid([Job("toys/train-seed0", {"seed": 0}, inputs)], folder / "out", train, str, show_progress=False)
