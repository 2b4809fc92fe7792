"""How a training process reaches its agent and its master: addresses, sockets, messages, signs of life."""
