"""From scheduled loop nests to the loop IR."""
