"""Importing late: names that load their module when they are asked for."""

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(package: str, places: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package whose names live in the modules that `places` tells."""

    def __getattr__(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(places[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def __dir__() -> list[str]:
        return sorted({*vars(sys.modules[package]), *places})

    return __getattr__, __dir__
