"""The embedded Kubernetes API server: HTTPS, bearer tokens, everything in memory.

async with ApiServer() as server:
    server.add_token("secret", "admin", ["system:masters"])
    ...  # kubectl --server server.url --certificate-authority <server.ca_pem> --token secret
"""

from elasticjob.devcluster.server.server import ApiServer

__all__ = ["ApiServer"]
