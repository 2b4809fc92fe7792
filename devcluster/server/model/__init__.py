"""What every part of the server knows: resources, requests, names, errors, and the store."""
