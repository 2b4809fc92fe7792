"""The kinds of group elastic.iml.github.io, version v1alpha1: one file per kind."""
