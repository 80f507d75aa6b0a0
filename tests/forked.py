"""Commands and Python code of README and guide, each in a fork of one process that has imported everything.

`python -m tests.forked` reads jobs as JSON from standard input and writes what each of them printed. A reader's command
imports PyTorch and transformers first, which takes longer than most of them; a fork has the imports and nothing else of
what ran before.
"""

import json
import os
import subprocess
import sys
import tempfile
import traceback
from contextlib import ExitStack
from pathlib import Path
from typing import Any


def run_jobs(jobs: list[dict[str, Any]], folder: Path, environment: dict[str, str]) -> list[dict[str, Any]]:
    """Run jobs in a folder: `arguments` of our command, with `input` to read, or Python `code`."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.forked", str(folder)],
        input=json.dumps(jobs),
        cwd=Path(__file__).parents[1],
        env=environment,
        capture_output=True,
        text=True,
        timeout=1800,  # for all of them
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _run(job: dict[str, Any]) -> None:
    if "code" in job:
        exec(compile(job["code"], "<page>", "exec"), {"__name__": "__main__"})
        return
    from fastformer.cli import main

    sys.argv = ["fastformer", *job["arguments"]]
    main()


def _forked(job: dict[str, Any]) -> dict[str, Any]:
    """What a job printed, and its exit code."""
    with ExitStack() as stack:
        streams = [stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8")) for _ in range(3)]
        streams[0].write(job.get("input", ""))
        streams[0].seek(0)
        if (child := os.fork()) == 0:
            for number, stream in enumerate(streams):
                os.dup2(stream.fileno(), number)
            os._exit(_exit_code(job))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        _, out, err = (stream.seek(0) or stream.read() for stream in streams)
    return {"code": code, "out": out, "err": err}


def _exit_code(job: dict[str, Any]) -> int:
    try:
        _run(job)
        return 0
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


if __name__ == "__main__":
    import fastformer.export.exporting  # noqa: F401
    from fastformer.tasks import declared

    for declaration in declared().values():
        declaration.load()
    given = json.load(sys.stdin)
    os.chdir(sys.argv[1])
    print(json.dumps([_forked(job) for job in given]))
