"""Tools for the tests of plugin authors."""
