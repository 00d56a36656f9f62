"""Sparse Jacobians and Hessians: compressed products with few vectors, chosen by colouring the pattern."""
