"""Carries out changes of sizes: by a ScalePlan for the operator, by pods, or by processes of this machine."""
