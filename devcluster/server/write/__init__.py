"""Create, update, patch and delete: decode, default, admit, check, store."""
