"""`--figure FILE|DIR/`: one figure in the format that its name says, or all of them in a folder."""

from argparse import SUPPRESS
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from vramscope.engine.errors import OutputFileError, UsageError

if TYPE_CHECKING:
    from argparse import _ActionsContainer

ENDINGS = (".pdf", ".png", ".svg")
ALL_KINDS: tuple[Literal["png", "pdf"], ...] = ("png", "pdf")
"""What a folder gets of each figure."""


class FigureTarget(NamedTuple):
    """Where figures go."""

    path: Path
    is_folder: bool

    @property
    def file(self) -> Path | None:
        """The one file; None for a folder."""
        return None if self.is_folder else self.path

    def list_files(self, name: str, kinds: Sequence[str] = ALL_KINDS) -> list[Path]:
        """Return the files of a figure: the one that was named, or one of each kind in the folder, made here.

        Raises:
            OutputFileError: The folder cannot be made.
        """
        return [self.make() / f"{name}.{kind}" for kind in kinds] if self.is_folder else [self.path]

    def check(self) -> None:
        """Find out before a long work whether figures can be written there; nothing is written.

        Raises:
            OutputFileError: They cannot.
        """
        from vramscope.engine.files.base.output_file import check_writable

        check_writable(self.path / "figure.part" if self.path.is_dir() else self.path)

    def make(self) -> Path:
        """Make the folder where it is missing, and return it.

        Raises:
            OutputFileError: It cannot be made.
        """
        from vramscope.engine.files.base.input_file import show_path

        try:
            self.path.mkdir(exist_ok=True)
        except OSError as error:
            raise OutputFileError(
                f"{show_path(self.path)}: cannot be made for figures: {error.strerror}; name another folder "
                "with --figure DIR/"
            ) from error
        return self.path


def read_figure(text: str, flag: str = "--figure") -> FigureTarget:
    """Return where the figures go: `plots/` and a folder that is there are folders, `run.pdf` is a file.

    Raises:
        UsageError: It is neither a folder nor a name that ends in a known format.
    """
    path = Path(text)
    if text.endswith("/") or path.is_dir():
        return FigureTarget(path, is_folder=True)
    if path.suffix.lower() in ENDINGS:
        return FigureTarget(path, is_folder=False)
    raise UsageError(
        f"{flag} {text}: expected a name that ends in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}, "
        f"or a folder with a slash at its end: {text}/"
    )


def read_old_figure(text: str) -> FigureTarget:
    """Return where figures go as the old `-o` says it: a known ending is a file, all else a folder."""
    path = Path(text)
    return FigureTarget(path, is_folder=path.is_dir() or path.suffix.lower() not in ENDINGS)


def add_figure_flag(
    group: "_ActionsContainer", text: str, *, flag: str = "--figure", is_hidden: bool = False
) -> None:
    """Add the flag; parsed, `figure` is a `FigureTarget` or None.

    Args:
        group: Where the flag is added.
        text: What is drawn into a FILE, for the help.
        flag: Its name.
        is_hidden: Keep it out of the help.
    """
    group.add_argument(
        flag,
        metavar="FILE|DIR/",
        type=read_figure if flag == "--figure" else lambda given: read_figure(given, flag),
        help=SUPPRESS if is_hidden else f"{text}, as .pdf, .png or .svg; into DIR/ all figures",
    )
