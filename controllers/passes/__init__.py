"""Parts of a pass that all controllers share: plan, rules, reads, writes, and triggers."""
