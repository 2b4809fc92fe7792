"""From statistics to a plan to a change: when to ask, what an optimizer answers, which nodes come and go."""
