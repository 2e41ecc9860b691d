"""Pure drawing: data in, styled text of an exact width out; nothing here knows an application."""
