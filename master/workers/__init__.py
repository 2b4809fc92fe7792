"""The workers' health: what they report (`watch`), who hangs (`hang`), who is slow (`straggler`)."""
