"""Recipes of CONTRIBUTING.md, played: a change that follows each, and a mistake that its tests must see."""
