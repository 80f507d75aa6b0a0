"""Scripts of ours that no test of another part runs."""

import json
import subprocess
import sys
from pathlib import Path

WATCH = Path(__file__).parents[1] / "scripts" / "watch_memory.py"


def test_a_command_s_memory_is_drawn_and_its_exit_code_is_passed_on(tmp_path):
    def watch(name, code):
        command = [sys.executable, WATCH, tmp_path / "memory.json", name, sys.executable, "-c", code]
        return subprocess.run(command, capture_output=True, timeout=60).returncode

    assert watch("idle", "pass") == 0
    assert watch("fails", "raise SystemExit(3)") == 3
    curves = json.loads((tmp_path / "memory.json").read_text(encoding="utf-8"))
    assert list(curves) == ["idle", "fails"]
    [[minutes, held], *_] = curves["idle"]
    assert minutes == 0
    assert held >= 0
    assert (tmp_path / "memory.png").read_bytes().startswith(b"\x89PNG")


def test_children_count_too():
    child = "import subprocess, sys, time; x = bytearray(b'1') * 50_000_000; print(flush=True); time.sleep(30)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    sys.path.insert(0, str(WATCH.parent))
    try:
        from watch_memory import resident
    finally:
        sys.path.remove(str(WATCH.parent))
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as process:
        process.stdout.readline()  # the child's: it holds its bytes
        try:
            assert resident(process.pid) > 50_000_000
        finally:
            subprocess.run(["pkill", "-P", str(process.pid)], check=False)
            process.kill()
