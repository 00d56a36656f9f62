"""The calling convention: native entries behind Python callables."""
