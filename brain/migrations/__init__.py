"""Alembic's migrations of Brain's tables; run.py applies them."""
