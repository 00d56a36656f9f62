"""The error of functions and of their derivatives over the whole range of their dtypes."""
