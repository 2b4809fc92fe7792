"""CustomResourceDefinitions: their checks, and the resources that they define."""
