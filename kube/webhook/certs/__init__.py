"""Certificates of the webhook server: made and kept in a Secret, or mounted by cert-manager."""
