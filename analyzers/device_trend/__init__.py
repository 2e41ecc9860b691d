"""How the used memory of a device goes, where its processes have no probe."""
