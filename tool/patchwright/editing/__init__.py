"""Working on the series: every change is one transaction, on record and undone at will."""
