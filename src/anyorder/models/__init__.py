"""The networks and their losses."""
