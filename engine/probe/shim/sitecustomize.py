"""Every Python that a job of `vramscope run` starts imports this first: its folder is in PYTHONPATH.

It makes the interpreter wait for torch or JAX, then runs the sitecustomize that it hides, if there is one.
The syntax is that of Python 2.7 and of every Python 3, because a job may start any of them.
"""

import os
import sys

_ours = sys.modules.pop(__name__, None)
_folder = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - Python 2 has no pathlib
_places = [
    (place, entry)
    for place, entry in enumerate(sys.path)
    if os.path.abspath(entry) == _folder  # noqa: PTH100
]

if sys.version_info >= (3, 9) and os.environ.get("VRAMSCOPE_PROBE"):
    try:
        import vramscope_shim  # type: ignore[import-not-found] # next to this file

        vramscope_shim.wait_for_framework(os.environ)
    except Exception:  # noqa: S110, BLE001 - whatever is wrong with us, the job runs
        pass

# The one further down the path, as it is found without us; what that one raises is its own affair.
for _place, _entry in _places:
    sys.path.remove(_entry)
try:
    import sitecustomize  # type: ignore[import-not-found] # noqa: F401
except ImportError as _error:
    if getattr(_error, "name", "sitecustomize") != "sitecustomize":
        raise
finally:
    for _place, _entry in _places:
        sys.path.insert(_place, _entry)
    if _ours is not None:
        sys.modules.setdefault(__name__, _ours)
