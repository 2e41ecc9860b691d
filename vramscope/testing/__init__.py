"""Memory in the tests of a training program: a plug-in of pytest."""
