"""Jobs that Kueue admits: what they ask of their queue, what they have of it, and what they give back."""
