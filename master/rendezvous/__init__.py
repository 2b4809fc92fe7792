"""Rules of rendezvous: which nodes form the next world, their ranks, and clusters of parameter servers."""
