"""The socket of the master: requests, long polls, bytes on the wire, pages."""
