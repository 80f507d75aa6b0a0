"""Importing late: names whose module is imported on first use, and work that waits for another library's import."""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def lazy_names(package: str, places: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package; `places` says which module each of its names is in."""

    def __getattr__(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(places[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def __dir__() -> list[str]:
        return sorted({*vars(sys.modules[package]), *places})

    return __getattr__, __dir__


def when_imported(library: str, do: Callable[[], None]) -> None:
    """Do something as soon as a library has been imported: now, if it has been; else right after, before its importer.

    So `import fastformer` need not import a library that a program may never use.
    """
    if sys.modules.get(library) is not None:
        do()
    else:
        sys.meta_path.insert(0, _Waiting(library, do))


class _Waiting(MetaPathFinder):
    """Finds a library where the others find it, and does something once it has run."""

    def __init__(self, library: str, do: Callable[[], None]):
        self.library, self.do = library, do

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The specification of the library, and of no other module."""
        if name != self.library or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def run_and_do(module: ModuleType) -> None:
            run(module)
            self.do()

        spec.loader.exec_module = run_and_do  # type: ignore[method-assign]  # of this one loader
        return spec
