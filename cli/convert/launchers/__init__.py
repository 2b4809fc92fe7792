"""Launchers of other systems, torchrun and deepspeed among them: their lines read, and written for ours."""
