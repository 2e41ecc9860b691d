"""Heat maps of sweeps over TP and PP; matplotlib loads when one is drawn."""

import warnings

from ...analyzers.planning.sweep import SweepGrid
from ...engine.errors import UsageError
from ..figures.page import SweepPage, hold_settings
from ..figures.page_style import SweepLook


def draw_sweep(grid: SweepGrid, look: SweepLook | None = None) -> SweepPage:
    """Return the heat map of a sweep as a figure of matplotlib.

    Args:
        grid: The cells.
        look: Style, size and resolution.

    Raises:
        UsageError: The size that was chosen is too small.
    """
    from .figure_original import draw_original
    from .figure_usenix import draw_usenix

    look = look or SweepLook()
    with hold_settings(look.style):
        page = draw_original(grid, look) if look.style == "original" else draw_usenix(grid, look)
        settle(page)
    return page


def settle(page: SweepPage) -> None:
    """Lay the page out once: every format has the same layout, and none costs another one.

    Raises:
        UsageError: The labels leave no room for the cells.
    """
    for axes in page.axes:
        for artist in axes.collections:
            artist.set_in_layout(False)  # what is in the cells takes no room, but time to be measured
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        page.draw_without_rendering()
    if any("constrained_layout not applied" in str(it.message) for it in told):
        width_in, height_in = page.get_size_inches()
        raise UsageError(
            f"a figure of {width_in:g} x {height_in:g} in has no room for cells beside its labels; "
            "make it larger, or leave the size to the grid"
        )
    page.set_layout_engine("none")
