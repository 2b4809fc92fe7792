"""What agents and the master say to each other: one file per conversation, msgspec only.

Every request travels as `POST /v1/<conversation>/<verb>` with a JSON body (MessagePack by Content-Type)
and may be repeated: a master answers the same question twice with the same effect as once.
"""
