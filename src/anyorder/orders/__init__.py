"""Generation orders: the fixed ones, orders from users, syntax trees, and statistics of orders."""
