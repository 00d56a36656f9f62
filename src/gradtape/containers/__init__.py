"""Objects of other libraries as containers: labelled data of xarray, and quantities of pint."""
