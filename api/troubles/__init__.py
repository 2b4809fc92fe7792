"""What is wrong with a job or a cluster: facts → troubles, each with its cause and the next step. Pure.

Doctor, the dashboard, `status.reason` with its condition, events, alerts and runbooks take their words here.
"""
