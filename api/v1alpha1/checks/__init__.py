"""Validation of each kind, one file each: pure functions.

`problems(new, old)` returns the errors of an object that is created (`old` is None) or updated. Used by
webhooks, controllers and the command line. The CRD's schema (types, enums, minimums) is not repeated here,
unless the CRD of another release may lack it.
"""
