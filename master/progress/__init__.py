"""How far the training is, how fast it goes, and where its time went."""
