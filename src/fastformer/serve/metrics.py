"""What Prometheus asks for: requests by route and status, how long they take, the queue and the batches."""

from typing import Any

from fastformer.errors import extra

with extra("serve"):
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
_TOKENS = tuple(4**power for power in range(2, 11))
_EXAMPLES = tuple(2**power for power in range(11))


class Metrics:
    """The meters of one server; each server has its own, so that two in one process do not share them."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        named: dict[str, Any] = {"registry": self.registry, "namespace": "fastformer"}
        self._requests = Counter("requests", "Requests answered.", ("route", "status"), **named)
        self._seconds = Histogram("request_seconds", "From request to answer.", ("route",), buckets=_SECONDS, **named)
        self._waiting = Gauge("queue_requests", "Requests that wait for the model.", ("model",), **named)
        self._shed = Counter("shed_requests", "Requests refused because too many wait.", ("model",), **named)
        self._examples = Histogram("batch_examples", "Examples of a batch.", ("model",), buckets=_EXAMPLES, **named)
        self._tokens = Histogram("batch_tokens", "Tokens of a batch, about.", ("model",), buckets=_TOKENS, **named)
        self._waited = Histogram("queue_seconds", "What a batch waited.", ("model",), buckets=_SECONDS, **named)
        self._computed = Histogram("batch_seconds", "What a batch took.", ("model",), buckets=_SECONDS, **named)
        self._open = Gauge("open_requests", "Requests that are being answered.", **named)

    def opened(self) -> None:
        """A request came."""
        self._open.inc()

    def answered(self, route: str, status: int, seconds: float) -> None:
        """A request was answered."""
        self._open.dec()
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def shed(self, model: str) -> None:
        """A request was refused."""
        self._shed.labels(model).inc()

    def batch(self, model: str, examples: int, tokens: int, waited: float) -> None:
        """A batch begins."""
        self._examples.labels(model).observe(examples)
        self._tokens.labels(model).observe(tokens)
        self._waited.labels(model).observe(waited)

    def computed(self, model: str, seconds: float) -> None:
        """A batch is done."""
        self._computed.labels(model).observe(seconds)

    def text(self, waiting: dict[str, int]) -> bytes:
        """All of it, as Prometheus reads it."""
        for model, count in waiting.items():
            self._waiting.labels(model).set(count)
        return generate_latest(self.registry)
