"""The inspector: a page in the browser that shows a compiled program from the user's lines to the assembly."""
