"""The page `docs/settings.md`: every setting with its documentation, made from the settings themselves."""

from operator import attrgetter

from ..engine.settings import SETTING_KEYS, Settings
from ..engine.settings.model import TABLES, describe_expectation
from .field_docs import read_field_docs

_HEAD = """\
# Settings

Every setting can be given in five places. The first that has it wins:

1. a flag: `--theme light`
2. an environment variable: `VRAMSCOPE_THEME=light`
3. `vramscope.toml` in the current folder: `theme = "light"`
4. the user's file, `$XDG_CONFIG_HOME/vramscope/config.toml` (usually `~/.config/vramscope/config.toml`)
5. the default

`--config FILE` or `VRAMSCOPE_CONFIG=FILE` reads that file in place of 3 and 4. `F12` in the live view saves
the look and the sorting into the user's file (or into the one `--config` names); comments and order stay as
they are. A setting that is unknown, or whose value does not fit, is refused with file, line and what was
expected. `vramscope doctor` lists the settings in use and where each was set.

Durations are seconds (`0.5`) or text with a unit (`"500ms"`, `"90s"`, `"10m"`, `"2h"`).

A setting with a dot in its name stands in a table: `alerts.bell` is `bell` under `[alerts]`. In a variable a
list is words with commas between them. What makes vramscope run a program or send something elsewhere
(`alerts.command`, `alerts.webhook_url`) is refused in `./vramscope.toml`, which may have come with somebody
else's repository.

"""

_TAIL = """\
## Other variables

- `VRAMSCOPE_RUNTIME_DIR`: private folder in which an agent and its viewers meet. Default:
  `$XDG_RUNTIME_DIR/vramscope`, else `/tmp/vramscope-<uid>`. It must be this user's own and closed to others.
- `VRAMSCOPE_NODE`: name under which this node is shown. Default: the first label of the host name.
- `VRAMSCOPE_SSH_COMMAND`: what starts vramscope on the nodes of `--ssh`, where its name alone does not.
- `VRAMSCOPE_DEBUG`: with any value an internal error prints its traceback; without, it is written to a file.
- `NO_COLOR`: with any value nothing is printed in colour (see <https://no-color.org>).
"""


def render_settings_page() -> str:
    """Return the text of `docs/settings.md`."""
    docs = read_field_docs(Settings)
    for table, struct in TABLES.items():
        docs |= {f"{table}.{field}": text for field, text in read_field_docs(struct).items()}
    defaults = Settings()
    parts = [_HEAD]
    for key, field in SETTING_KEYS.items():
        default = _describe_default(attrgetter(field)(defaults))
        variable = f"VRAMSCOPE_{key.upper().replace('.', '_')}"
        parts.append(
            f"## `{key}`\n\n{docs[field]}\n\n"
            f"Takes {describe_expectation(key)}. Default: {default}. Variable: `{variable}`.\n\n"
        )
    return "".join(parts) + _TAIL


def _describe_default(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    if isinstance(value, tuple):
        return f"`[{', '.join(chr(34) + word + chr(34) for word in value)}]`"
    return f"`{value:g}`" if isinstance(value, float) else f'`"{value}"`'
