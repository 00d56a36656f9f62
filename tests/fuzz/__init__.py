"""Programs that look for defects by chance: a few rounds in the tests, any number from the command line."""
