"""Write the pages and schemas that are made from the program itself: run `python docs/generate.py`."""

from pathlib import Path

from vramscope.exporters.schema import SCHEMAS, render_schema, render_settings_page

DOCS = Path(__file__).resolve().parent

if __name__ == "__main__":
    pages = {f"{name}.schema.json": render_schema(name) for name in SCHEMAS}
    pages["settings.md"] = render_settings_page()
    for name, text in pages.items():
        (DOCS / name).write_text(text, encoding="utf-8")
        print(DOCS / name)
