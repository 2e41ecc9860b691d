"""What runs inside the interpreter that trains before torch or JAX is there: a finder that waits for them.

Pure standard library, Python 3.9 and newer. Nothing is loaded that a process without them does not need.
"""

import os
import sys

TYPE_CHECKING = False  # as in typing, whose import costs more than all that is done here
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

PROBE_MODULE = "vramscope_probe"
SIMULATION_MODULE = "vramscope_simulation"
ALLOCATOR_MODULE = "vramscope_allocator_model"
# Modules that the probe follows.
FRAMEWORKS = ("torch", "jax")


class FrameworkFinder:
    """A finder that finds nothing: when torch or JAX is looked for it starts the probe and removes itself."""

    def __init__(self, environ: "os._Environ[str]") -> None:
        self._environ = environ

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        """Return the other finders' spec of torch or JAX, None for anything else."""
        if name not in FRAMEWORKS:
            return None
        from importlib.util import find_spec

        if self in sys.meta_path:
            sys.meta_path.remove(self)
            try:  # noqa: SIM105 - contextlib is not loaded in every process
                _start_watching(self._environ)
            except Exception:  # noqa: S110, BLE001 - whatever is wrong with us, the job runs
                pass
        return find_spec(name)  # once more, so that finders which the probe has added are asked as well


def wait_for_framework(environ: "os._Environ[str]") -> None:
    """Wait for torch or JAX, in a process that was started by `vramscope run`."""
    sys.meta_path.insert(0, FrameworkFinder(environ))


def load_package(name: str, folder: str) -> "ModuleType":
    """Load the package in a folder, once, under a name that need not be on the path; raises `ImportError`."""
    found = sys.modules.get(name)
    if found is not None:
        return found
    from importlib.util import module_from_spec, spec_from_file_location

    first = os.path.join(folder, "__init__.py")  # noqa: PTH118 - pathlib is not loaded in every process
    spec = spec_from_file_location(name, first, submodule_search_locations=[folder])
    if spec is None or spec.loader is None:
        raise ImportError(f"no package in {folder}")
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def start_probe(folder: str, runtime_dir: str) -> "ModuleType":
    """Start the probe at once, because this very process was asked for; return its package."""
    job = os.environ.get("VRAMSCOPE_JOB") or None
    probe = load_package(PROBE_MODULE, folder)
    probe.start(runtime_dir, job=job, is_explicit=True)
    return probe


def _start_watching(environ: "os._Environ[str]") -> None:
    probe = load_package(PROBE_MODULE, environ["VRAMSCOPE_PROBE"])
    probe.watch_imports(environ["VRAMSCOPE_RUNTIME_DIR"], environ.get("VRAMSCOPE_JOB"))
    simulated = environ.get("VRAMSCOPE_SIMULATE")
    if simulated:
        probe.after_torch_import(lambda _torch: _simulate(simulated))
    profiling = environ.get("VRAMSCOPE_PROFILING")
    if profiling:
        import json

        config = json.loads(profiling)
        probe.after_torch_import(lambda torch: probe.profile_modules(torch, config))


def _simulate(text: str) -> None:
    """Install the simulated device; without it the job would do something else, so a failure is printed."""
    try:
        import json

        config = json.loads(text)
        allocator = load_package(ALLOCATOR_MODULE, config["allocator_path"])
        load_package(SIMULATION_MODULE, config["simulation_path"]).install(config, allocator)
    except Exception as error:  # noqa: BLE001 - the job decides by itself what to do without a device
        sys.stderr.write(
            f"vramscope simulate: cannot install the simulated device ({type(error).__name__}: {error})\n"
        )
