"""A release: version, wheel and sdist, chart, images, list of parts, digests."""
