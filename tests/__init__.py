"""The tests of vramscope."""
