"""Custom resources as Pydantic models, and the CustomResourceDefinitions made of them.

API kinds import `model` only; `generate` and what it needs are loaded by those who make a definition.
"""
