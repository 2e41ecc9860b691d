"""The text of the help in little and in ample room."""

from vramscope.tui.screens.dialogs import _explain

SENTENCE = "Show the next training process of the device, or the next device."


def test_in_little_room_a_meaning_stands_under_its_key_and_has_the_width() -> None:
    narrow = [line.plain for line in _explain("PgUp PgDn Home End", SENTENCE, 26, 35)]
    assert narrow[0] == "  PgUp PgDn Home End"
    assert narrow[1].startswith("    Show the next training")
    assert all(len(line) <= 35 for line in narrow)
    assert len(narrow) == 4
    wide = [line.plain for line in _explain("PgUp PgDn Home End", SENTENCE, 26, 87)]
    assert wide[0].startswith("  PgUp PgDn Home End      Show the next training")
