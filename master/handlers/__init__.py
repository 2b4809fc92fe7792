"""What each request to the master does: one file for each conversation of api/rpc, and the table of all."""
