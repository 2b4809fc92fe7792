"""The check of nodes before they train: who runs the payload with whom, and what the results say."""
