"""How much a server takes on: of a request, of a batch, and of all that wait."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What is refused, and when. Tokens are counted before a text is split: about four characters each."""

    body: int = 16_000_000  # bytes of a request
    text: int = 2_000_000  # characters of one text
    inputs: int = 1024  # examples of one request
    queue: int = 512  # requests that wait for the model
    connections: int = 1024  # that are open beside those of requests that wait
    queue_tokens: int = 4_000_000  # what these hold
    batch_tokens: int = 32_768  # that run together
    wait: float = 0.0  # seconds that the first request of a batch waits for company, where the model is idle
    timeout: float = 60.0  # seconds until a request is given up
    upload: float = 30.0  # seconds that a client may take to send its request
    truncate: bool = False  # cut texts that are longer than the model reads, unless a request says otherwise


def tokens_of(example: object) -> int:
    """About how many tokens an example has."""
    return 1 + len(example if isinstance(example, str) else str(example)) // 4
