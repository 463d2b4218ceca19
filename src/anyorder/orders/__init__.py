"""The fixed orders, and what orders are like."""
