"""Memory for results and for scratch buffers."""
