"""Messages between agents and the master: one file per conversation, msgspec only.

Every request is `POST /v1/<conversation>/<verb>` with a JSON body (MessagePack by Content-Type). Requests are
idempotent: they may be retried.
"""
