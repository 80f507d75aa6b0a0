"""Memory is measured for real, in a process of its own, and survives whatever happens there."""

JOB = {"mixer": "toy", "module": "tests.bench.toy", "length": 64, "mode": "inference", "seed": 0, "threads": 1}


def test_more_tokens_need_more_memory(probe):
    few, many = (probe.measure(**JOB, batch=batch)["peak_memory_mb"] for batch in (8, 256))
    activation = 64 * (256 - 8) * 256 * 4 / 1e6  # one tensor of token vectors
    assert many - few > activation


def test_a_failure_is_one_line_and_the_next_job_is_answered(probe):
    failed = probe.measure(**{**JOB, "mixer": "unknown"}, batch=1)
    assert failed["error"].startswith("UserError: unknown mixer")
    killed = probe.measure(**{**JOB, "module": "doomed"}, batch=1)
    assert "memory" in killed["error"]
    assert probe.measure(**JOB, batch=1)["seconds"] > 0
