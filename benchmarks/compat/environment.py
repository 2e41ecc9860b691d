"""Makes the environment of `make compat`: the packages of this one, and more.

python -m benchmarks.compat.environment FOLDER

PyTorch and vramscope are those of the interpreter that runs this, so that nothing large is there twice.
"""

import sys
import sysconfig
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Make the environment; pip then installs into it what is not here."""
    (folder,) = sys.argv[1:]
    venv.create(folder, with_pip=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": folder, "platbase": folder}))
    shared = (sysconfig.get_path("purelib"), str(HERE / "site"))
    lines = [f"import site; site.addsitedir({path!r})\n" for path in shared]
    (packages / "shared.pth").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
