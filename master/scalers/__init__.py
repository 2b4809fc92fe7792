"""Who carries out a change: ScalePlans (the operator does), pods, or processes of this machine."""
