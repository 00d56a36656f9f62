"""Objects of other libraries as containers: labelled data of xarray, tables of pandas, and quantities of pint and astropy."""
