"""Random classes, whose objects change state during and between calls."""
