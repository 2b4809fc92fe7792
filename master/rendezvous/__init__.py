"""Rendezvous: the conversation by which nodes join and leave, and the rules of its rounds."""
