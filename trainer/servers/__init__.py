"""Parameter servers that change while they train, for the store and TensorFlow."""
