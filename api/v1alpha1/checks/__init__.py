"""What is refused, and why: pure checks of each kind, one file each.

`problems(new, old)` returns what is wrong with an object that is created (`old` is None) or updated. Webhooks
refuse by it, controllers and the command line ask it too. What the CRD's schema says already (types, enums,
least values) is not said again here, but for what a CRD of another release might not say.
"""
