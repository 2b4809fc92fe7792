"""Custom resources as Pydantic models, and the CustomResourceDefinitions made of them.

API kinds import `model` only; `generate` and its libraries are loaded only where a definition is made.
"""
