"""What a test reads off the alerts screen."""

from vramscope.tui.alerts.screen import AlertsScreen
from vramscope.tui.app import VramscopeApp


def on_alerts(app: VramscopeApp) -> AlertsScreen:
    assert isinstance(app.screen, AlertsScreen)
    return app.screen


def lines(app: VramscopeApp) -> list[str]:
    """Return the rows of the list."""
    listed = on_alerts(app).list
    return [listed.render_line(y).text.strip() for y in range(listed.size.height)]


def selected(app: VramscopeApp) -> str:
    row = on_alerts(app).list.selected_row
    assert row is not None
    return row.finding.kind
