"""Jobs and clusters that are broken, and whether doctor names the cause, and its next step mends them."""
